//! Renders pages. All external text goes through [`words::text`], which makes invisible characters visible; maud
//! escapes all of it.

pub(crate) mod action;
pub(crate) mod arguments;
pub(crate) mod chart;
pub(crate) mod room;
pub(crate) mod words;

use maud::{DOCTYPE, Markup, html};

use crate::api::problem::FieldError;
use crate::domain::ids::DEFAULT_TENANT;
use crate::http::console::session::{FIELD, Visitor};
use crate::http::console::{STYLE_HASH, paths};

/// Renders a page.
pub(crate) fn page(visitor: Option<&Visitor>, title: &str, body: &Markup) -> Markup {
    document(
        None,
        title,
        None,
        html! {
            a.skip href="#main" { "Skip to the content" }
            header.bar {
                a.brand href=(paths::APPROVALS) { "gavel" }
                @if let Some(visitor) = visitor {
                    nav aria-label="Pages" {
                        a href=(paths::APPROVALS) { "Approvals" }
                        a href=(paths::SESSIONS) { "Planning" }
                        a href=(paths::GRANTS) { "Always allowed" }
                        @if visitor.user.is_some() { a href=(paths::THREADS) { "Threads" } }
                        a href=(paths::OVERVIEW) { "Analysis" }
                    }
                    (who(visitor))
                }
            }
            main #main { (body) }
        },
    )
}

/// Renders the page inside a frame. It may refresh itself after some seconds.
pub(crate) fn in_frame(title: &str, refresh: Option<u32>, status: &Markup) -> Markup {
    let refresh = refresh.map(|seconds| seconds.to_string());
    document(
        Some("news"),
        title,
        refresh.as_deref(),
        html! { p role="status" { (status) } },
    )
}

fn document(class: Option<&str>, title: &str, refresh: Option<&str>, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html class=[class] lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                @if let Some(when) = refresh { meta http-equiv="refresh" content=(when); }
                title { (words::text(title)) " · gavel" }
                link rel="stylesheet" href={ (paths::STYLE) "?" (*STYLE_HASH) };
            }
            body { (body) }
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
                (form(visitor, paths::LOG_OUT, &[], &html! { button.plain type="submit" { "Log out" } }))
            }
        }
    }
}

/// A form of the visitor that posts to this path, with these hidden fields.
pub(crate) fn form(visitor: &Visitor, path: &str, hidden: &[(&str, &str)], content: &Markup) -> Markup {
    html! {
        form method="post" action=(path) {
            // The token binds the form to the browser that displays it.
            @if let Some(token) = &visitor.form_token { input type="hidden" name=(FIELD) value=(token); }
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            (content)
        }
    }
}

/// A button that shows what it would do, with the form that does it.
pub(crate) fn unfold(label: &str, content: &Markup) -> Markup {
    html! { details { summary.button { (label) } (content) } }
}

/// A page that makes the browser repeat the request with its cookies.
pub(crate) fn again(path: &str) -> Markup {
    let body = html! { main #main { p { a href=(path) { "Continue to the page" } } } };
    document(None, "One moment", Some(&format!("0;url={path}")), body)
}

/// The form of a filter for the list at this address.
pub(crate) fn filter(list: &str, is_on: bool, fields: &Markup) -> Markup {
    html! {
        details.filter open[is_on] {
            summary { "Filter" @if is_on { " (on)" } }
            form method="get" action=(list) {
                (fields)
                button type="submit" { "Show" }
                @if is_on { a href=(list) { "Show all" } }
            }
        }
    }
}

/// A text field of a filter.
pub(crate) fn field(name: &str, label: &str, value: Option<&str>) -> Markup {
    html! {
        label for={ "f-" (name) } { (label) }
        input #{ "f-" (name) } type="text" name=(name) value=(value.unwrap_or_default()) autocomplete="off";
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
pub(crate) fn next(address: &str) -> Markup {
    html! { p.next { a href=(address) { "Next page" } } }
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
