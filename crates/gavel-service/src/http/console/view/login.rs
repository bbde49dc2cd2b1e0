//! The login page.

use crate::http::console::paths;
use maud::{Markup, html};

use super::super::form::FIELD;
use super::words;

/// The required credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// A service's key, and the acting user.
    Key,
    /// A user's token.
    Token,
}

/// The data of the form.
pub(crate) struct LoginForm<'a> {
    pub(crate) wants: Wants,
    pub(crate) form_token: &'a str,
    /// The address after the login.
    pub(crate) next: Option<&'a str>,
    /// The user entered before.
    pub(crate) user: &'a str,
    pub(crate) problem: Option<&'a str>,
}

/// Renders the page.
pub(crate) fn form(form: &LoginForm<'_>) -> Markup {
    let label = match form.wants {
        Wants::Key => "API key",
        Wants::Token => "Token (JWT)",
    };
    html! {
        div.login {
            h1 { "Log in" }
            p.lead { "gavel's console: approve or reject what agents want to do, and read plans and threads." }
            @if let Some(problem) = form.problem { p.flash.bad role="alert" { (words::text(problem)) } }
            form method="post" action=(paths::LOGIN) {
                input type="hidden" name=(FIELD) value=(form.form_token);
                @if let Some(next) = form.next { input type="hidden" name="next" value=(next); }
                label for="credential" { (label) }
                input #credential type="password" name="credential" required autocomplete="off" autofocus
                    autocapitalize="off" spellcheck="false";
                @if form.wants == Wants::Key {
                    label for="user" { "Your name" }
                    input #user type="text" name="user" value=(form.user) autocomplete="username" autocapitalize="off"
                        spellcheck="false" aria-describedby="user-hint";
                    p.hint #user-hint { "The acting user, as agents know you (" code { "X-Gavel-User" } "). Optional with a personal key and with a key for approvers." }
                }
                p.hint {
                    @match form.wants {
                        Wants::Key => { "The operator of gavel gives you a key (" code { "gavel config new-key" } ")." }
                        Wants::Token => { "Your identity provider issues the token." }
                    }
                }
                button.yes type="submit" { "Log in" }
            }
        }
    }
}
