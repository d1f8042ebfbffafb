# Web, worker, beat, watcher and migrations: one image, the command decides.
FROM node:22-slim AS console
WORKDIR /app/frontend
COPY frontend/package.json frontend/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY frontend ./
RUN npm run build

FROM python:3.12-slim AS packages
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
COPY constraints.txt ./
RUN pip install --constraint constraints.txt hatchling editables
COPY pyproject.toml build_hook.py README.md LICENSE ./
COPY platform ./platform
COPY inference_engine ./inference_engine
COPY kernels ./kernels
RUN pip install --constraint constraints.txt --no-build-isolation --editable ".[platform,otel]"

FROM python:3.12-slim
# The engine's image uses the same account, because both open one Unix socket and one artifact folder.
RUN useradd --uid 10001 --create-home lorikeet \
    && install -d -o lorikeet -g lorikeet /var/lib/lorikeet /var/lib/lorikeet-secrets /run/lorikeet
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY --from=packages /venv /venv
COPY --from=packages /app /app
COPY manage.py ./
COPY demo ./demo
COPY --from=console /app/frontend/dist ./frontend/dist
# `python -m scripts.release` gives both. By hand: docker build --build-arg BUILD="$(git describe --tags --always --dirty)"
ARG VERSION=
ARG BUILD=
ENV LORIKEET_BUILD=$BUILD
LABEL org.opencontainers.image.title="lorikeet" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version=$VERSION org.opencontainers.image.revision=$BUILD
USER lorikeet
EXPOSE 8000
CMD ["python", "-m", "control_plane.serve", "--host", "0.0.0.0", "--port", "8000"]
