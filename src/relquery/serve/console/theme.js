// The colours, chosen before the page is drawn: those of the system, or those of the toggle.
const chosen = localStorage.getItem("relquery-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
