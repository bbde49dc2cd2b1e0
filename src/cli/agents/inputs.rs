//! Converts the command line's inputs to the types of the agent's definition; reports every error at once.

use serde_json::{Map, Number, Value};

use crate::domain::definition::{Definition, InputType, strict_json};

/// The inputs as given.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    /// `NAME=VALUE`, in order.
    pub(super) pairs: &'a [String],
    /// A JSON object and where it came from.
    pub(super) object: Option<(&'a str, &'a str)>,
    /// Text without a name.
    pub(super) text: Option<String>,
}

/// The inputs of a run.
///
/// # Errors
/// Every error in them.
pub(super) fn inputs(definition: &Definition, given: &Given<'_>) -> Result<Map<String, Value>, Vec<String>> {
    let mut errors = Vec::new();
    let mut inputs = object(given, &mut errors);
    // A name whose value is invalid is not also reported as missing.
    let mut invalid = Vec::new();
    let mut add = |name: &str, value: Value, place: &str, errors: &mut Vec<String>| {
        if inputs.insert(name.to_owned(), value).is_some() {
            errors.push(format!("{place}: {name} is already given"));
        }
    };
    let mut named: Vec<(&str, Vec<&str>)> = Vec::new();
    for pair in given.pairs {
        match pair.split_once('=') {
            Some((name, value)) => match named.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => named.push((name, vec![value])),
            },
            None => errors.push(format!("--input {pair}: is not NAME=VALUE")),
        }
    }
    for (name, values) in named {
        let place = format!("--input {name}");
        // The definition reports an unknown name, with the name that may be meant.
        let kind = definition
            .inputs
            .get(name)
            .map_or(InputType::String, |input| input.kind);
        match typed(kind, &values) {
            Ok(value) => add(name, value, &place, &mut errors),
            Err(problem) => {
                invalid.push(name);
                errors.push(format!("{place}: {problem}; allowed: {}", kind.as_str()));
            }
        }
    }
    if let Some(text) = &given.text {
        match definition.text_input() {
            Some(name) => add(name, Value::from(text.as_str()), "TEXT", &mut errors),
            None => errors.push(format!(
                "TEXT: {} takes more than one text, or none; give each with --input NAME=VALUE",
                definition.name
            )),
        }
    }
    match definition.check_arguments(inputs) {
        Ok(inputs) if errors.is_empty() => Ok(inputs),
        Ok(_) => Err(errors),
        Err(found) => {
            let others = found.iter().filter(|error| !invalid.contains(&error.name.as_str()));
            errors.extend(others.map(ToString::to_string));
            Err(errors)
        }
    }
}

fn object(given: &Given<'_>, errors: &mut Vec<String>) -> Map<String, Value> {
    let Some((place, text)) = given.object else {
        return Map::new();
    };
    match strict_json(text.as_bytes()) {
        Ok(Value::Object(inputs)) => inputs,
        Ok(_) => {
            errors.push(format!("--input-json {place}: is not a JSON object of inputs by name"));
            Map::new()
        }
        Err(error) => {
            errors.push(format!("--input-json {place}: is not JSON: {error}"));
            Map::new()
        }
    }
}

/// A list is given once, with commas, or with the option repeated for each element.
fn typed(kind: InputType, values: &[&str]) -> Result<Value, String> {
    let element = match kind {
        InputType::Strings => InputType::String,
        InputType::Numbers => InputType::Number,
        InputType::Integers => InputType::Integer,
        InputType::Booleans => InputType::Boolean,
        InputType::String | InputType::Number | InputType::Integer | InputType::Boolean => {
            return match values {
                [value] => one(kind, value),
                _ => Err("is given more than once".to_owned()),
            };
        }
    };
    let elements: Vec<&str> = match values {
        [""] => Vec::new(),
        [list] => list.split(',').collect(),
        many => many.to_vec(),
    };
    elements.into_iter().map(|value| one(element, value)).collect()
}

fn one(kind: InputType, text: &str) -> Result<Value, String> {
    let found = match kind {
        InputType::Number => text.trim().parse::<Number>().ok().map(Value::from),
        InputType::Integer => text.trim().parse::<i64>().ok().map(Value::from),
        InputType::Boolean => text.trim().parse::<bool>().ok().map(Value::from),
        _ => Some(Value::from(text)),
    };
    found.ok_or_else(|| format!("{text:?} is not of type {}", kind.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(inputs: &str) -> Definition {
        let text = format!(
            r#"{{"name": "a", "description": "d", "inputConfig": {{"inputs": {inputs}}},
                 "promptConfig": {{"systemPrompt": "s", "query": "{}"}}}}"#,
            serde_json::from_str::<Map<String, Value>>(inputs)
                .unwrap()
                .keys()
                .map(|name| format!("${{{name}}}"))
                .collect::<String>()
        );
        Definition::read(text.as_bytes(), crate::domain::definition::Form::Json, "a").unwrap()
    }

    fn every_type() -> Definition {
        definition(
            r#"{"s": {"description": "d", "type": "string", "required": true}, "n": {"description": "d", "type": "number"},
                "i": {"description": "d", "type": "integer"}, "b": {"description": "d", "type": "boolean"},
                "ss": {"description": "d", "type": "string[]"}, "ii": {"description": "d", "type": "integer[]"}}"#,
        )
    }

    fn pairs(pairs: &[&str]) -> Vec<String> {
        pairs.iter().map(|pair| (*pair).to_owned()).collect()
    }

    #[test]
    fn values_have_the_types_of_the_definition() {
        let given = pairs(&["s=a=b", "n=-1.5e3", "i=7", "b=true", "ss=a,b", "ii=1", "ii=2"]);
        let given = Given {
            pairs: &given,
            ..Given::default()
        };
        let read = inputs(&every_type(), &given).unwrap();
        assert_eq!(
            Value::Object(read),
            json!({"s": "a=b", "n": -1500.0, "i": 7, "b": true, "ss": ["a", "b"], "ii": [1, 2]})
        );
        let given = pairs(&["ss=a,b", "ss=c", "ii="]);
        let given = Given {
            pairs: &given,
            object: Some(("-", r#"{"b": false}"#)),
            text: Some("words".to_owned()),
        };
        let read = inputs(&every_type(), &given).unwrap();
        assert_eq!(
            Value::Object(read),
            json!({"s": "words", "ss": ["a,b", "c"], "ii": [], "b": false}),
            "TEXT is the only required string, and a list option that is given twice is read element by element"
        );
    }

    #[test]
    fn every_error_is_reported_at_once() {
        let given = pairs(&["i=1.5", "b=yes", "n=1", "n=2", "sss=x", "nothing", "ii=1,x"]);
        let given = Given {
            pairs: &given,
            object: Some(("in.json", r#"{"ss": "a"}"#)),
            text: None,
        };
        assert_eq!(
            inputs(&every_type(), &given).unwrap_err(),
            [
                "--input nothing: is not NAME=VALUE",
                "--input i: \"1.5\" is not of type integer; allowed: integer",
                "--input b: \"yes\" is not of type boolean; allowed: boolean",
                "--input n: is given more than once; allowed: number",
                "--input ii: \"x\" is not of type integer; allowed: integer[]",
                "ss: is a string; allowed: string[]",
                "sss: is not an argument of a; allowed: did you mean `ss`?",
                "s: is missing; string is required",
            ]
        );
    }

    #[test]
    fn text_goes_to_no_argument_that_could_be_another() {
        let two = definition(
            r#"{"a": {"description": "d", "type": "string", "required": true}, "b": {"description": "d", "type": "string", "required": true}}"#,
        );
        let number = definition(r#"{"a": {"description": "d", "type": "number", "required": true}}"#);
        for definition in [two, number] {
            let given = Given {
                text: Some("x".to_owned()),
                ..Given::default()
            };
            let errors = inputs(&definition, &given).unwrap_err();
            assert!(
                errors[0].starts_with("TEXT: a takes more than one text, or none"),
                "{errors:?}"
            );
        }
        let optional = definition(r#"{"a": {"description": "d", "type": "string"}}"#);
        let given = Given {
            text: Some("x".to_owned()),
            ..Given::default()
        };
        assert_eq!(inputs(&optional, &given).unwrap()["a"], "x");
    }
}
