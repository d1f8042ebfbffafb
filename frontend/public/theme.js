// Sets theme and density before the first paint. Same keys as src/app/preferences.ts.
(function () {
  var root = document.documentElement;
  var theme = "system";
  var density = "comfortable";
  try {
    theme = localStorage.getItem("lorikeet.theme") || theme;
    density = localStorage.getItem("lorikeet.density") || density;
  } catch {
    // Storage can be blocked by the browser; the defaults are fine then.
  }
  var dark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "dark" : "light";
  root.dataset.density = density === "compact" ? "compact" : "comfortable";
})();
