import js from "@eslint/js";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import globals from "globals";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "coverage", "src/api/schema.d.ts"] },
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [
      ...tseslint.configs.recommendedTypeChecked,
      jsxA11y.flatConfigs.strict,
      reactHooks.configs.flat["recommended-latest"],
    ],
    languageOptions: {
      globals: globals.browser,
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      // The router's redirects are thrown by design.
      "@typescript-eslint/only-throw-error": [
        "error",
        { allow: [{ from: "package", package: "@tanstack/router-core", name: "Redirect" }] },
      ],
      // React event props expect void; an async handler that reports its own errors is fine there.
      "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
      "no-restricted-syntax": [
        "error",
        {
          selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
          message: "Render text as text: model output is untrusted.",
        },
      ],
    },
  },
  {
    // The React compiler, which most of the rules about hooks run, would parse each file once more. Tests have no hooks.
    files: ["**/*.test.{ts,tsx}"],
    rules: Object.fromEntries(
      Object.keys(reactHooks.configs.flat["recommended-latest"].rules)
        .filter((name) => name !== "react-hooks/rules-of-hooks" && name !== "react-hooks/exhaustive-deps")
        .map((name) => [name, "off"]),
    ),
  },
  { files: ["scripts/**/*.mjs", "*.js"], languageOptions: { globals: { ...globals.node, ...globals.browser } } },
  { files: ["public/*.js"], languageOptions: { globals: globals.browser, sourceType: "script" } },
);
