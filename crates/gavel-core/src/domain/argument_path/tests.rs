//! Which paths parse, and which values they find.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn texts(path: &str, arguments: &Value) -> Result<Vec<(String, String)>, String> {
    let found = ArgumentPath::parse(path).unwrap().texts(arguments)?;
    Ok(found
        .into_iter()
        .map(|(place, text)| (place, text.to_owned()))
        .collect())
}

#[test]
fn a_path_is_names_with_dots_and_lists() {
    for right in ["to", "message.to", "attendees[].email", "a[].b[].c", "to[]", "x-y_z"] {
        assert_eq!(ArgumentPath::parse(right).unwrap().to_string(), right);
    }
    for invalid in ["", ".", "a.", "[]", "a[0]", "a[]b", "a b", "a[][]", "/to"] {
        assert!(ArgumentPath::parse(invalid).is_none() || invalid == "/to", "{invalid}");
    }
}

#[test]
fn a_value_is_found_at_the_path_at_which_it_was_set() {
    let mut arguments = Value::Null;
    for path in ["to", "m.x", "m.y", "p[].email", "p[].name", "to.deeper"] {
        let path = ArgumentPath::parse(path).unwrap();
        path.set(&mut arguments, path.to_string().into());
        assert_eq!(path.one_text(&arguments).unwrap().unwrap().1, path.to_string());
    }
    let set = json!({"to": {"deeper": "to.deeper"}, "m": {"x": "m.x", "y": "m.y"},
        "p": [{"email": "p[].email", "name": "p[].name"}]});
    assert_eq!(arguments, set);
}

#[test]
fn every_shape_of_recipients_is_found_with_its_place() {
    let of = |found: &[(&str, &str)]| Ok(found.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect());
    for (path, arguments, expected) in [
        ("to", json!({"to": "a"}), of(&[("/to", "a")])),
        ("to", json!({"to": ["a", "b"]}), of(&[("/to/0", "a"), ("/to/1", "b")])),
        ("to[]", json!({"to": ["a"]}), of(&[("/to/0", "a")])),
        ("to", json!({"to": [{"email": "a"}]}), of(&[("/to/0/email", "a")])),
        ("to", json!({"to": {"email": "a"}}), of(&[("/to/email", "a")])),
        ("m.to", json!({"m": {"to": "a"}}), of(&[("/m/to", "a")])),
        ("p[].email", json!({"p": [{"email": "a"}]}), of(&[("/p/0/email", "a")])),
        ("to", json!({}), of(&[])),
        ("to", json!({"to": null}), of(&[])),
        ("m.to", json!({"m": {}}), of(&[])),
        ("p[].email", json!({"p": []}), of(&[])),
    ] {
        assert_eq!(texts(path, &arguments), expected, "{path} of {arguments}");
    }
}

/// a recipient in an unexpected form is never missed.
#[test]
fn another_shape_is_an_error_and_never_nothing() {
    for (path, arguments, place) in [
        ("p[].email", json!({"p": "eve@x.org"}), "/p: "),
        ("p[].email", json!({"p": ["eve@x.org"]}), "/p/0: "),
        ("p[].email", json!({"p": [{"mail": "eve@x.org"}]}), "/p/0: "),
        ("p[].email", json!({"p": [{"email": null}]}), "/p/0/email: "),
        ("p[].email", json!({"p": [null]}), "/p/0: "),
        ("m.to", json!({"m": "eve@x.org"}), "/m: "),
        ("m.to", json!({"m": ["eve@x.org"]}), "/m: "),
        ("to", json!({"to": 7}), "/to: "),
        ("to", json!({"to": [null]}), "/to/0: "),
        ("to", json!({"to": [["eve@x.org"]]}), "/to/0: "),
        ("to", json!({"to": {"address": "eve@x.org"}}), "/to: "),
    ] {
        let found = texts(path, &arguments);
        assert!(
            matches!(&found, Err(error) if error.starts_with(place)),
            "{path} of {arguments}: {found:?}"
        );
    }
}

/// a value that no path names is found, in any form and at any depth.
#[test]
fn all_values_besides_texts_and_free_ones_are_found() {
    let paths = |texts: &[&str]| -> Vec<_> { texts.iter().map(|text| ArgumentPath::parse(text).unwrap()).collect() };
    let (to, free) = (
        paths(&["to", "m.to", "p[].email"]),
        paths(&["body", "m.subject", "p[].name", "to[].name"]),
    );
    for (arguments, expected) in [
        (json!({"to": ["a"], "body": {"any": ["thing"]}}), &[][..]),
        (
            json!({"to": "a", "m": {"to": ["b"], "subject": 1}, "p": [{"email": "c", "name": "C"}]}),
            &[],
        ),
        (
            json!({"to": [{"email": "a", "name": "A"}, {"email": "b", "bcc": "e"}]}),
            &["/to/1/bcc"],
        ),
        (json!({"to": null, "p": [], "m": {}}), &[]),
        (
            json!({"to": 7, "m": [], "p": {"email": "c"}}),
            &["/m", "/p/email", "/to"],
        ),
        (json!({"to": [["e"]], "cc": null, "bcc": []}), &["/bcc", "/cc"]),
        (
            json!({"e@x.org": true, "m": {"body": "b", "to/": "e"}}),
            &["/e@x.org", "/m/body", "/m/to~1"],
        ),
        (json!({"p": [{"email": "c", "more": {"e": 1}}]}), &["/p/0/more"]),
    ] {
        assert_eq!(others(&to, &free, &arguments), expected, "{arguments}");
    }
}
