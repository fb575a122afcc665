/** Login form. */

import { call } from "../api.js";
import { announce, field, h, replace } from "../dom.js";

/** Show the form; `cancel` leads back, where a login is not needed. */
export function show(main, { welcome, cancel }) {
  const user = h("input", { name: "user", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { class: "problem", role: "alert" });
  const button = h("button", { class: "button primary", text: "Log in" });
  const form = h("form", { class: "login panel" },
    h("h1", { text: "Log in" }),
    h("p", { class: "muted", text: cancel ? "A user may see and do more." : "This server asks for a user and a password." }),
    field("User", user), field("Password", password), problem, button,
    cancel && h("button", { type: "button", class: "button", text: "Continue without a login", onclick: cancel }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      const me = await call("POST", "/api/v1/login", { body: { user: user.value, password: password.value }, isLogin: true });
      announce(`Logged in as ${me.user}`);
      welcome(me);
    } catch (error) {
      problem.textContent = error.status === 401 ? "User or password is wrong." : error.message;
      password.value = "";
      password.focus();
    } finally {
      button.disabled = false;
    }
  });
  replace(main, form);
  user.focus();
}
