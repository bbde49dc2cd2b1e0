//! Agents that call agents as tools (X-15).

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::journal::FaultKind;
use gavel::domain::tool::FailureCode;
use serde_json::{Value, json};

use crate::model::{Piece, call, fault, hangs, words};
use crate::rig::{Outcome, Rig, seconds};
use crate::tools::Does;

fn boss(more: &str) -> String {
    format!(
        r#"
name: boss
description: Leads.
promptConfig: {{ query: "${{query}}", systemPrompt: boss }}
sub_agents: [helper]
{more}
"#
    )
}

fn helper(more: &str) -> String {
    format!(
        r#"
name: helper
description: Helps with one thing.
inputConfig:
  inputs:
    what: {{ description: With what., type: string, required: true }}
    often: {{ description: How often., type: integer }}
promptConfig: {{ query: "${{what}} ${{often}}", systemPrompt: helper }}
toolConfig: {{ tools: [read, send] }}
approval: never
{more}
"#
    )
}

async fn rig(of_boss: &str, of_helper: &str) -> Rig {
    Rig::new(&[boss(of_boss).as_str(), helper(of_helper).as_str()]).await
}

fn go() -> Value {
    json!({"query": "go"})
}

fn help() -> crate::model::Say {
    call("helper", json!({"what": "count"}))
}

/// The error of an agent's only call, as the caller's model received it.
fn reported(rig: &Rig) -> (FailureCode, String) {
    let asked = rig.model.asked_of("boss");
    let (_, outcome) = &asked.last().unwrap().responses()[0];
    outcome.clone().unwrap_err()
}

async fn child(rig: &Rig, run: &Outcome) -> Outcome {
    rig.outcome(run.called()[0]).await
}

/// X-15, D-3, D-4: an agent is called like a tool, by its description and inputs. It has its own conversation, and its
/// run names the caller.
#[tokio::test]
async fn an_agent_calls_another_one_like_a_tool() {
    let rig = rig("", "").await;
    rig.model.script("boss", [help(), words("Three, says the helper.")]);
    rig.model.script("helper", [call("read", json!({})), words("three")]);
    let run = rig.run("boss", go()).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "Three, says the helper.")
    );
    assert_eq!(run.row.steps, 2, "its own model calls");

    let child = child(&rig, &run).await;
    assert_eq!(
        (child.status(), child.summary(), child.row.steps),
        (RunStatus::Completed, "three", 2)
    );
    assert_eq!(
        (child.row.parent_run_id, child.row.agent_id.as_str()),
        (Some(run.id), "helper")
    );
    assert_eq!(rig.tools.sent()[0].run, child.id.to_string());

    let asked = rig.model.asked_of("boss");
    assert_eq!(asked[0].names(), ["helper"]);
    assert_eq!(
        asked[0].functions[0].1,
        json!({"type": "object", "required": ["what"], "properties": {
            "what": {"type": "string", "description": "With what."},
            "often": {"type": "integer", "description": "How often."},
            "timeout": {"type": "number", "minimum": 1,
                "description": "Time limit for the agent, in seconds. Omit it to use the agent's own limit."}}})
    );
    assert_eq!(
        asked[1].responses(),
        [("helper".to_owned(), Ok(json!({"output": "three"})))]
    );
    let asked = rig.model.asked_of("helper");
    assert!(matches!(&asked[0].contents[..], [Piece::User(task)] if task.ends_with("\n\ncount ")));
}

/// X-15, D-R4: inputs are checked before the called agent starts.
#[tokio::test]
async fn an_agent_called_with_invalid_inputs_does_not_start() {
    let rig = rig("", "").await;
    rig.model.script(
        "boss",
        [call("helper", json!({"often": "twice", "x": 1})), words("I failed.")],
    );
    let run = rig.run("boss", go()).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let (code, message) = reported(&rig);
    assert_eq!(code, FailureCode::InvalidArguments);
    for part in [
        "what: is missing",
        "often: is a string; allowed: integer",
        "x: is not an argument of helper",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(rig.runs().await, ["boss completed"]);
}

/// D-R4: of very many invalid arguments the model receives only some, so that its next prompt stays short.
#[tokio::test]
async fn of_a_thousand_invalid_arguments_the_model_receives_only_some() {
    let rig = rig("", "").await;
    let invalid: Value = (0..1500)
        .map(|n| (format!("{n}{}", "x".repeat(60)), json!(1)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    rig.model.script("boss", [call("helper", invalid), words("I failed.")]);
    let run = rig.run("boss", go()).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let (_, message) = reported(&rig);
    assert!(
        message.contains("is not an argument of helper; allowed: often, what"),
        "{message}"
    );
    assert!(message.len() <= 8 << 10, "{} bytes", message.len());
}

/// X-15: a failing sub-agent is a tool error, not a crash.
#[tokio::test]
async fn a_failing_sub_agent_is_a_tool_error_to_its_caller() {
    let rig = rig("", "").await;
    rig.model.script("boss", [help(), words("It failed.")]);
    rig.model.script("helper", [fault(FaultKind::Blocked)]);
    let run = rig.run("boss", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "It failed."));
    let (code, message) = reported(&rig);
    assert_eq!(code, FailureCode::ToolError);
    assert_eq!(
        message,
        "helper failed: The model's provider blocked the prompt or the answer."
    );
    assert_eq!(child(&rig, &run).await.status(), RunStatus::Failed);
}

/// X-15, X-6: an interrupted sub-agent is an error that includes its progress. Its limits are its own.
#[tokio::test]
async fn an_interrupted_sub_agent_is_an_error_that_includes_its_progress() {
    let rig = rig("", "runConfig: { max_turns: 1 }").await;
    rig.model.script("boss", [help(), words("It got halfway.")]);
    rig.model
        .script("helper", [call("read", json!({})), words("One of two.")]);
    let run = rig.run("boss", go()).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let (code, message) = reported(&rig);
    assert_eq!(code, FailureCode::ToolError);
    assert!(
        message.starts_with("helper was cut short: ") && message.ends_with("Progress so far: One of two."),
        "{message}"
    );
    assert_eq!(child(&rig, &run).await.row.stop_reason, Some(StopReason::StepLimit));
}

/// X-5: a sub-agent without a limit has fifty steps.
#[tokio::test]
async fn a_sub_agent_without_a_limit_has_fifty_steps() {
    let rig = rig("", "").await;
    rig.model.script("boss", [help(), words("It never ended.")]);
    rig.model.answers("helper", |asked| match asked.mode.as_str() {
        "none" => words("Fifty so far."),
        _ => call("read", json!({"n": asked.before})),
    });
    let run = rig.run("boss", go()).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!((rig.tools.calls("read"), rig.model.asked_of("helper").len()), (50, 51));
    let child = child(&rig, &run).await;
    assert_eq!(
        (child.status(), child.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::StepLimit))
    );
}

/// X-15, X-8: the caller's deadline applies to the called agent, and the caller sums up the results so far.
#[tokio::test]
async fn the_callers_deadline_applies_to_the_called_agent() {
    let rig = rig(
        "runConfig: { deadline_seconds: 60 }",
        "runConfig: { deadline_seconds: 600 }",
    )
    .await;
    rig.model.script(
        "boss",
        [help().after(seconds(20)), words("The helper had not finished.")],
    );
    rig.model.script(
        "helper",
        [call("read", json!({})).saying("I begin.").after(seconds(10)), hangs()],
    );
    let run = rig.run("boss", go()).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Paused, "The helper had not finished.")
    );
    assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit));
    let times: Vec<_> = rig.model.asked_of("helper").iter().map(|asked| asked.time).collect();
    assert_eq!(times, [seconds(40), seconds(30)]);
    assert_eq!(rig.model.asked_of("boss")[1].time, seconds(30));
    assert_eq!(rig.clock.passed(), seconds(60));
    assert!(reported(&rig).1.ends_with("Progress so far: I begin."));
    assert_eq!(child(&rig, &run).await.status(), RunStatus::Paused);
}

/// X-15, X-8: a sub-agent with less time than its caller sums up within its own grace period.
#[tokio::test]
async fn a_sub_agent_with_less_time_than_its_caller_sums_up_by_itself() {
    let rig = rig(
        "runConfig: { deadline_seconds: 60 }",
        "runConfig: { deadline_seconds: 50 }",
    )
    .await;
    rig.model.script("boss", [help(), words("Half is enough.")]);
    rig.model.script("helper", [hangs(), words("Half.").after(seconds(9))]);
    let run = rig.run("boss", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Half is enough."));
    let times: Vec<_> = rig.model.asked_of("helper").iter().map(|asked| asked.time).collect();
    assert_eq!(
        times,
        [seconds(50), seconds(10)],
        "no more time than the caller has left"
    );
}

/// X-15: agents call each other at most five levels deep. A deeper call is an error that the model receives.
#[tokio::test]
async fn agents_call_each_other_at_most_five_levels_deep() {
    let definitions: Vec<_> = (0..8)
        .map(|n| {
            let sub = if n < 7 { format!("sub_agents: [a{}]", n + 1) } else { String::new() };
            format!(
                "name: a{n}\ndescription: Passes on.\npromptConfig: {{ query: \"${{query}}\", systemPrompt: a{n} }}\n{sub}\n"
            )
        })
        .collect();
    let rig = Rig::new(&definitions.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for n in 0..8 {
        rig.model.script(
            &format!("a{n}"),
            [call(&format!("a{}", n + 1), json!({"query": "on"})), words("passed on")],
        );
    }
    let run = rig.run("a0", json!({"query": "on"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.runs().await.len(), 6);
    let deepest = rig.model.asked_of("a5");
    assert_eq!(deepest[1].failures(), [Some(FailureCode::LimitReached)]);
}

/// X-15. Promise: at most once. An in-doubt call in a called run stops its callers until a person has settled it.
#[tokio::test]
async fn an_in_doubt_call_in_a_sub_agent_pauses_its_caller() {
    let rig = rig("", "").await;
    rig.tools.script("send", [Does::IsLost]);
    rig.model.script("boss", [help(), words("All is well.")]);
    rig.model.script("helper", [call("send", json!({})), words("Sent.")]);
    let run = rig.run("boss", go()).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt))
    );
    assert_eq!(rig.model.asked_of("boss").len(), 1);
    let child = child(&rig, &run).await;
    assert_eq!(
        (child.status(), child.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt))
    );
    let ([above], [below]) = (&run.row.in_doubt[..], &child.row.in_doubt[..]) else {
        panic!("{:?} {:?}", run.row.in_doubt, child.row.in_doubt)
    };
    assert_eq!((above.tool.as_str(), above.action_id), ("send", below.action_id));

    let settled = [(above.action_id, false)];
    let resumed = rig.resume(run.id, &settled).await;
    assert_eq!(
        (resumed.status(), resumed.summary()),
        (RunStatus::Completed, "All is well.")
    );
    let asked = rig.model.asked_of("helper");
    let [(_, Err((_, reported)))] = asked[1].responses() else {
        panic!("{:?}", asked[1].responses())
    };
    assert!(reported.contains("did not have its effect"), "{reported}");
}

/// X-15. Promise: at most once. This also holds if the called agent is a flow.
#[tokio::test]
async fn an_in_doubt_call_in_a_called_flow_pauses_its_caller() {
    let flow = r#"
name: helper
description: A flow.
inputConfig: { inputs: { what: { description: What., type: string, required: true } } }
flow_type: sequential
steps: [{ agent: sender, input: { query: "${what}" } }]
"#;
    let sender = r#"
name: sender
description: Sends.
promptConfig: { query: "${query}", systemPrompt: sender }
toolConfig: { tools: [send] }
approval: never
"#;
    let rig = Rig::new(&[boss("").as_str(), flow, sender]).await;
    rig.tools.script("send", [Does::LosesTheAnswer]);
    rig.model.script("boss", [help(), words("All is well.")]);
    rig.model.script("sender", [call("send", json!({})), words("Sent.")]);
    let run = rig.run("boss", go()).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::InDoubt))
    );
    assert_eq!(rig.runs().await, ["boss paused", "helper paused", "sender paused"]);
}

/// D-1, X-15: an agent named in `tools` is called like one in `sub_agents`, beside the tools of servers.
#[tokio::test]
async fn an_agent_that_tools_names_is_called_like_a_tool() {
    let boss = boss("toolConfig: { tools: [read, helper] }").replace("sub_agents: [helper]\n", "");
    let rig = Rig::new(&[boss.as_str(), helper("").as_str()]).await;
    rig.model
        .script("boss", [help().and("read", json!({})), words("Three.")]);
    rig.model.script("helper", [words("three")]);
    let run = rig.run("boss", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Three."));
    assert_eq!(rig.runs().await, ["boss completed", "helper completed"]);
    let asked = rig.model.asked_of("boss");
    assert_eq!(asked[0].names(), ["read", "helper"]);
    let answered: Vec<_> = asked[1]
        .responses()
        .iter()
        .map(|(name, answer)| (name.clone(), answer.is_ok()))
        .collect();
    assert_eq!(answered, [("helper".to_owned(), true), ("read".to_owned(), true)]);
}

/// D-1: if an agent and a tool have the same name, neither is called, and the error names both.
#[tokio::test]
async fn an_agent_with_the_name_of_a_granted_tool_is_an_error_that_names_both() {
    let boss = boss("toolConfig: { tools: [look] }").replace("sub_agents: [helper]\n", "");
    let look = helper("").replace("name: helper", "name: look");
    let rig = Rig::new(&[boss.as_str(), look.as_str()]).await;
    let run = rig.run("boss", go()).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(
        run.error()
            .starts_with("\"look\" in tools is the name of the agent look and of a tool of the server ")
            && run.error().ends_with("__look, or rename the agent"),
        "{}",
        run.error()
    );
    assert_eq!(rig.model.asked().len(), 0);
}

/// X-10: the time of a called agent is set by its caller's model, else by its caller's definition, else by its own. It
/// never exceeds what the caller has left.
#[tokio::test]
async fn a_sub_agent_may_be_given_a_time_of_its_own() {
    for (sub_agents, argument, own, expected) in [
        ("[helper]", json!(null), "50", 50),
        ("[helper]", json!(20), "50", 20),
        ("[helper]", json!(55), "50", 55),
        ("[{ agent: helper, timeout: 40 }]", json!(null), "50", 40),
        ("[{ agent: helper, timeout: 1m }]", json!(null), "50", 60),
        ("[{ agent: helper, timeout: 40 }]", json!(20), "50", 20),
        ("[{ agent: helper, timeout: 5m }]", json!(null), "50", 100),
        ("[helper]", json!(1000), "50", 100),
    ] {
        let boss = boss("default_timeout: 100").replace("[helper]", sub_agents);
        let helper = helper(&format!("default_timeout: {own}"));
        let rig = Rig::new(&[boss.as_str(), helper.as_str()]).await;
        rig.model.script(
            "boss",
            [
                call("helper", json!({"what": "count", "timeout": argument})),
                words("Three."),
            ],
        );
        rig.model.script("helper", [words("three")]);
        let run = rig.run("boss", go()).await;
        assert_eq!(run.status(), RunStatus::Completed);
        let asked = rig.model.asked_of("helper");
        let what = format!("{sub_agents} {argument}");
        assert_eq!(asked[0].time, seconds(expected), "{what}");
        // It is not an input of the agent.
        assert!(
            matches!(&asked[0].contents[..], [Piece::User(task)] if task.ends_with("\n\ncount ")),
            "{what}"
        );
    }
}

/// X-10: an invalid time is an error that the model receives, and no run starts.
#[tokio::test]
async fn an_invalid_time_starts_no_run() {
    let rig = rig("", "").await;
    rig.model.script(
        "boss",
        [
            call("helper", json!({"what": "count", "timeout": "5m"})),
            words("I failed."),
        ],
    );
    rig.run("boss", go()).await;
    let (code, message) = reported(&rig);
    assert_eq!(code, FailureCode::InvalidArguments);
    assert_eq!(
        message,
        "timeout: is not a duration; allowed: a number of seconds from 1 to 2147483647"
    );
    assert_eq!(rig.runs().await, ["boss completed"]);
}
