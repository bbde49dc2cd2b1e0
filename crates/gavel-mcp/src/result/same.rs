//! Does the content of a result equal its structure?

use serde_json::Value;
use serde_json::value::RawValue;

use super::Block;

/// Is the content exactly the JSON of `structured`? Some SDKs put a value that is not an object under a single member
/// `result`, and write each element of a list as a separate block.
pub(super) fn says(blocks: &[Block<'_>], structured: &RawValue) -> bool {
    let mut texts = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block.text.map(|text| serde_json::from_str::<String>(text.get())) {
            // Blank text says nothing.
            Some(Ok(text)) if block.kind == "text" && text.trim().is_empty() => {}
            Some(Ok(text)) if block.kind == "text" => texts.push(text),
            _ => return false,
        }
    }
    if texts.is_empty() {
        return true;
    }
    // In nearly all results, the texts are identical.
    if let [text] = &texts[..]
        && text == structured.get()
    {
        return true;
    }
    let Ok(structured) = serde_json::from_str::<Value>(structured.get()) else {
        return false;
    };
    let wrapped = structured.as_object().filter(|members| members.len() == 1);
    let wrapped = wrapped.and_then(|members| members.get("result"));
    let is = |text: &str, value: &Value| {
        value.as_str() == Some(text) || serde_json::from_str(text).is_ok_and(|reported: Value| equal(&reported, value))
    };
    let whole = |value: &Value| match (&texts[..], value) {
        ([text], value) if is(text, value) => true,
        (texts, Value::Array(items)) => {
            texts.len() == items.len() && texts.iter().zip(items).all(|(text, item)| is(text, item))
        }
        _ => false,
    };
    whole(&structured) || wrapped.is_some_and(whole)
}

/// Equal as JSON, where `1` equals `1.0`.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
        }
        (a, b) => a == b,
    }
}
