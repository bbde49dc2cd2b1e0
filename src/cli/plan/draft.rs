//! A plan as the JSON text that a user edits.

use serde_json::Value;

use crate::api::planning::Session;
use crate::cli::exit::Usage;
use crate::domain::plan::{Draft, DraftTask, Task};

/// The current plan, for an editor.
pub(super) fn of(session: &Session) -> anyhow::Result<String> {
    let task = |task: &Task| DraftTask {
        id: Some(task.id),
        title: task.title.clone(),
        goal: task.goal.clone(),
        done_when: task.done_when.clone(),
        tools: task.tools.clone(),
    };
    let draft = Draft {
        summary: session.summary.clone(),
        tasks: session.plan.iter().map(task).collect(),
        assumptions: session.assumptions.clone(),
        risks: session.risks.clone(),
    };
    Ok(format!(
        "{}\n",
        serde_json::to_string_pretty(&serde_json::to_value(draft)?)?
    ))
}

/// Reads an edited text. The server checks the plan itself; this finds errors of JSON, with their line.
///
/// # Errors
/// It is no JSON object.
pub(super) fn read(text: &str, from: &str) -> anyhow::Result<Value> {
    let read: Result<Value, _> = serde_json::from_str(text);
    match read {
        Ok(draft) if draft.is_object() => Ok(draft),
        Ok(_) => Err(Usage(format!("{from}: is no JSON object with summary and tasks")).into()),
        Err(error) => Err(Usage(format!("{from}: is no JSON: {error}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn the_text_for_the_editor_is_a_draft_that_keeps_every_id() {
        let session = json!({
            "summary": "Tests first.", "assumptions": ["main builds"], "risks": [],
            "plan": [sample::<Task>(json!({"id": "t3", "title": "Write tests", "goal": "A failing test.", "doneWhen": "it fails",
                "tools": ["getFileContents"]}))],
        });
        let text = of(&sample(session)).unwrap();
        let draft: Draft = serde_json::from_str(&text).unwrap();
        assert_eq!(draft.tasks[0].id.unwrap().to_string(), "t3");
        assert_eq!(
            (draft.tasks[0].done_when.as_str(), draft.assumptions.len()),
            ("it fails", 1)
        );
        assert_eq!(read(&text, "x").unwrap(), json!(draft));
    }

    #[test]
    fn an_error_of_json_names_its_line() {
        let error = read("{\n \"summary\": x}", "plan.json").unwrap_err().to_string();
        assert!(
            error.starts_with("plan.json: is no JSON: ") && error.contains("line 2"),
            "{error}"
        );
        assert!(read("[]", "-").unwrap_err().to_string().contains("no JSON object"));
    }
}
