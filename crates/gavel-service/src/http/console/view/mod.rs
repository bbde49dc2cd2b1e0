//! Renders pages. All external text goes through [`words::text`], which makes invisible characters visible; maud
//! escapes all of it.

pub(crate) mod action;
pub(crate) mod arguments;
pub(crate) mod room;
pub(crate) mod words;

use maud::{DOCTYPE, Markup, html};

use crate::api::problem::FieldError;
use crate::domain::ids::DEFAULT_TENANT;
use crate::http::console::paths;
use crate::http::console::session::{FIELD, Visitor};

/// Renders a page.
pub(crate) fn page(visitor: Option<&Visitor>, title: &str, style: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, style, None))
            body {
                a.skip href="#main" { "Skip to the content" }
                header.bar {
                    a.brand href=(paths::APPROVALS) { "gavel" }
                    @if let Some(visitor) = visitor {
                        nav aria-label="Pages" {
                            a href=(paths::APPROVALS) { "Approvals" }
                            a href=(paths::SESSIONS) { "Planning" }
                            a href=(paths::GRANTS) { "Always allowed" }
                            @if visitor.user.is_some() { a href=(paths::THREADS) { "Threads" } }
                        }
                        (who(visitor))
                    }
                }
                main #main { (body) }
            }
        }
    }
}

pub(crate) fn head(title: &str, style: &str, refresh: Option<&str>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            @if let Some(when) = refresh { meta http-equiv="refresh" content=(when); }
            title { (words::text(title)) " · gavel" }
            link rel="stylesheet" href={ (paths::STYLE) "?" (style) };
        }
    }
}

fn who(visitor: &Visitor) -> Markup {
    html! {
        div.who {
            span { b { bdi { (words::text(&visitor.shown())) } } @if visitor.is_approver() { " · approver" }
                @if visitor.caller.tenant.as_str() != DEFAULT_TENANT { " · tenant " bdi { (words::text(visitor.caller.tenant.as_str())) } }
            }
            a.zone href=(paths::ZONE) { "Times in " (visitor.zone.name().replace('_', " ")) }
            @if visitor.logged_in {
                form method="post" action=(paths::LOG_OUT) {
                    (token(visitor))
                    button.plain type="submit" { "Log out" }
                }
            }
        }
    }
}

/// The token that binds a form to the browser that displays it.
pub(crate) fn token(visitor: &Visitor) -> Markup {
    html! {
        @if let Some(token) = &visitor.form_token { input type="hidden" name=(FIELD) value=(token); }
    }
}

/// A page that makes the browser repeat the request with its cookies.
pub(crate) fn again(path: &str, style: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("One moment", style, Some(&format!("0;url={path}"))))
            body { main #main { p { a href=(path) { "Continue to the page" } } } }
        }
    }
}

/// Renders an error.
pub(crate) fn trouble(title: &str, words: &str, errors: &[FieldError]) -> Markup {
    html! {
        h1 { (title) }
        p { (words::text(words)) }
        @if !errors.is_empty() {
            ul { @for error in errors { li { (words::text(&error.pointer)) ": " (words::text(&error.detail)) } } }
        }
        p { a href=(paths::APPROVALS) { "Back to the approvals" } }
    }
}

/// A link to the next page of a list.
pub(crate) fn next(path: &str, pairs: &[(&str, Option<&str>)]) -> Markup {
    html! { p.next { a href=(address(path, pairs)) { "Next page" } } }
}

/// A path with the parameters that are present.
pub(crate) fn address(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}
