//! The login.

use maud::{Markup, html};

use super::super::form::FIELD;
use super::words;
use crate::http::routes::Route;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http::console) enum Wants {
    /// A service's key, and who acts.
    Key,
    /// A user's token.
    Token,
}

/// What the form is made of.
pub(in crate::http::console) struct LoginForm<'a> {
    pub(in crate::http::console) wants: Wants,
    pub(in crate::http::console) form_token: &'a str,
    /// Where it leads.
    pub(in crate::http::console) next: Option<&'a str>,
    /// Who was named before.
    pub(in crate::http::console) user: &'a str,
    pub(in crate::http::console) problem: Option<&'a str>,
}

/// The page.
pub(in crate::http::console) fn form(form: &LoginForm<'_>) -> Markup {
    let label = match form.wants {
        Wants::Key => "API key",
        Wants::Token => "Token (JWT)",
    };
    html! {
        div.login {
            h1 { "Log in" }
            @if let Some(problem) = form.problem { p.flash.bad role="alert" { (words::text(problem)) } }
            form method="post" action=(Route::ConsoleLogin.path()) {
                input type="hidden" name=(FIELD) value=(form.form_token);
                @if let Some(next) = form.next { input type="hidden" name="next" value=(next); }
                label for="credential" { (label) }
                input #credential type="password" name="credential" required autocomplete="off" autofocus
                    autocapitalize="off" spellcheck="false";
                @if form.wants == Wants::Key {
                    label for="user" { "Your name" }
                    input #user type="text" name="user" value=(form.user) autocomplete="username" autocapitalize="off"
                        spellcheck="false" aria-describedby="user-hint";
                    p.hint #user-hint { "Who acts, as agents know you (" code { "X-Gavel-User" } "). With a key that is yours alone, and with one for approvers, it may be left empty." }
                }
                button.yes type="submit" { "Log in" }
            }
        }
    }
}
