# The engine, for CPU (--target cpu) or NVIDIA GPUs (--target gpu).
ARG TORCH=torch==2.13.0

FROM python:3.12-slim AS base
RUN useradd --uid 10001 --create-home lorikeet \
    && install -d -o lorikeet -g lorikeet /var/lib/lorikeet-engine /run/lorikeet \
    && python -m venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
COPY constraints.txt ./
RUN pip install --constraint constraints.txt hatchling editables

FROM base AS cpu
ARG TORCH
# PyPI's Linux build of torch is the CUDA one; PyTorch's own index has the small one.
RUN pip install --constraint constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu "$TORCH"
COPY pyproject.toml build_hook.py README.md LICENSE ./
COPY inference_engine ./inference_engine
COPY kernels ./kernels
COPY platform ./platform
RUN pip install --constraint constraints.txt --no-build-isolation --editable ".[engine,join]"
# `python -m scripts.release` gives both. By hand: docker build --build-arg BUILD="$(git describe --tags --always --dirty)"
ARG VERSION=
ARG BUILD=
ENV LORIKEET_BUILD=$BUILD
LABEL org.opencontainers.image.title="lorikeet" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version=$VERSION org.opencontainers.image.revision=$BUILD
USER lorikeet
CMD ["python", "-m", "lora_engine", "--help"]

FROM base AS gpu
ARG TORCH
# Triton compiles a small launcher with the system's C compiler at the first use of each kernel.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN pip install --constraint constraints.txt "$TORCH"
COPY pyproject.toml build_hook.py README.md LICENSE ./
COPY inference_engine ./inference_engine
COPY kernels ./kernels
COPY platform ./platform
RUN pip install --constraint constraints.txt --no-build-isolation --editable ".[engine,join]"
# Kernels compiled once are kept beside the adapters, so that a restart is quick.
ENV TRITON_CACHE_DIR=/var/lib/lorikeet-engine/triton
# `python -m scripts.release` gives both. By hand: docker build --build-arg BUILD="$(git describe --tags --always --dirty)"
ARG VERSION=
ARG BUILD=
ENV LORIKEET_BUILD=$BUILD
LABEL org.opencontainers.image.title="lorikeet" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version=$VERSION org.opencontainers.image.revision=$BUILD
USER lorikeet
CMD ["python", "-m", "lora_engine", "--help"]
