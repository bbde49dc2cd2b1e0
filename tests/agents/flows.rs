//! Pipelines and loops (X-2, X-3).

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::journal::FaultKind;
use serde_json::{Value, json};

use crate::model::{Asked, call, fault, words};
use crate::rig::{Outcome, Rig, seconds};
use crate::support::TestDb;
use crate::tools::Does;

/// Finds facts and returns them as a list.
const FINDER: &str = r#"
name: finder
description: Finds.
promptConfig: { query: "Find: ${query}", systemPrompt: finder }
toolConfig: { tools: [read, send] }
approval: never
outputConfig: { outputName: facts, description: Facts., schema: { type: array, items: { type: string } } }
"#;

const WRITER: &str = r#"
name: writer
description: Writes.
inputConfig:
  inputs:
    topic: { description: About what., type: string, required: true }
    facts: { description: From what., type: "string[]", required: true }
    most: { description: How many words., type: integer }
    critic: { description: What the critic said., type: string }
promptConfig: { query: "${topic} from ${facts}, at most ${most}. Critic: ${critic}", systemPrompt: writer }
"#;

const CRITIC: &str = r#"
name: critic
description: Judges.
promptConfig: { query: "Judge: ${query}", systemPrompt: critic }
"#;

fn article(more: &str) -> String {
    format!(
        r#"
name: article
description: An article.
inputConfig:
  inputs:
    topic: {{ description: About what., type: string, required: true }}
    most: {{ description: How many words., type: integer }}
flow_type: sequential
steps:
  - {{ name: facts, agent: finder, input: {{ query: "all about ${{topic}}" }} }}
  - writer
  - {{ name: verdict, agent: critic, input: {{ query: "${{writer}} by ${{facts}}" }} }}
{more}
"#
    )
}

async fn pipeline(more: &str) -> Rig {
    pipeline_on(TestDb::sqlite().await, more).await
}

pub(crate) async fn pipeline_on(db: TestDb, more: &str) -> Rig {
    let rig = Rig::on(db, &[FINDER, WRITER, CRITIC, article(more).as_str()]).await;
    rig.model
        .script("finder", [call("complete_task", json!({"facts": ["old", "blue"]}))]);
    rig.model.script("writer", [words("An old blue whale.")]);
    rig.model.script("critic", [words("Good.")]);
    rig
}

pub(crate) fn whales() -> Value {
    json!({"topic": "whales", "most": 9})
}

/// The task of an agent, without the date.
fn task(asked: &Asked) -> &str {
    asked.task().split_once("\n\n").unwrap().1
}

async fn called(rig: &Rig, run: &Outcome) -> Vec<Outcome> {
    let mut called = Vec::new();
    for id in run.called() {
        called.push(rig.outcome(id).await);
    }
    called
}

/// X-2: each step sees the outputs of earlier steps by name and with their types. A value that `input` omits comes from
/// the step or the input of the same name.
#[tokio::test]
async fn each_step_of_a_pipeline_sees_the_outputs_of_earlier_steps() {
    let rig = pipeline("").await;
    let run = rig.run("article", whales()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Good."));
    let asked = rig.model.asked();
    let tasks: Vec<_> = asked.iter().map(task).collect();
    assert_eq!(
        tasks,
        [
            "Find: all about whales",
            // `critic` is an optional argument and the agent of a later step. In a pipeline it is empty.
            r#"whales from ["old","blue"], at most 9. Critic: "#,
            r#"Judge: An old blue whale. by ["old","blue"]"#,
        ]
    );
    assert_eq!(run.row.steps, 3);
    let steps = called(&rig, &run).await;
    assert!(steps.iter().all(|step| step.row.parent_run_id == Some(run.id)));
    assert_eq!(
        rig.runs().await,
        [
            "article completed",
            "finder completed",
            "writer completed",
            "critic completed"
        ]
    );
}

/// X-2: the output of the last step is the output of the flow, structured if the step's output is.
#[tokio::test]
async fn the_output_of_the_last_step_is_the_output_of_the_pipeline() {
    let rig = Rig::new(&[
        FINDER,
        r#"
name: search
description: Finds twice.
flow_type: sequential
steps: [{ name: first, agent: finder }, { agent: finder, input: { query: "${first}" } }]
"#,
    ])
    .await;
    rig.model.answers("finder", |asked| {
        let facts = if asked.task().ends_with("Find: whales") {
            json!(["a"])
        } else {
            json!(["b", "c"])
        };
        call("complete_task", json!({"facts": facts}))
    });
    let run = rig.run("search", json!({"query": "whales"})).await;
    assert_eq!((run.status(), run.output()), (RunStatus::Completed, json!(["b", "c"])));
    assert_eq!(run.summary(), r#"["b","c"]"#);
    // A list that is used as text becomes JSON.
    assert_eq!(task(&rig.model.asked()[1]), r#"Find: ["a"]"#);
}

/// X-2: a failing step ends the flow, and the error names the step and the cause.
#[tokio::test]
async fn a_failing_step_fails_the_pipeline_and_nothing_after_it_runs() {
    let rig = pipeline("").await;
    rig.model.script("writer", [fault(FaultKind::Blocked)]);
    let run = rig.run("article", whales()).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(
        run.error(),
        "the step \"writer\" failed: it failed: The model's provider blocked the prompt or the answer."
    );
    assert_eq!(
        run.summary(),
        r#"["old","blue"]"#,
        "the summary is the output of the last completed step"
    );
    assert_eq!(run.row.steps, 2);
    assert_eq!(
        rig.runs().await,
        ["article failed", "finder completed", "writer failed"]
    );
}

/// X-2, X-6: an interrupted step pauses the flow. After a resume the step continues its own conversation, and completed
/// steps are not repeated.
#[tokio::test]
async fn a_resumed_pipeline_continues_at_the_interrupted_step() {
    let finder = FINDER.to_owned() + "runConfig: { max_turns: 2 }";
    let rig = Rig::new(&[finder.as_str(), WRITER, CRITIC, article("").as_str()]).await;
    let read = |n: u32| call("read", json!({"n": n}));
    rig.model.script(
        "finder",
        [
            read(1),
            read(2),
            words("I read two.").after(seconds(1)),
            read(3),
            call("complete_task", json!({"facts": ["old"]})),
        ],
    );
    rig.model.script("writer", [words("An old whale.")]);
    rig.model.script("critic", [words("Good.")]);
    let first = rig.run("article", whales()).await;
    assert_eq!((first.status(), first.summary()), (RunStatus::Paused, "I read two."));
    assert_eq!((first.row.stop_reason, first.row.steps), (Some(StopReason::Step), 3));
    assert_eq!(rig.runs().await, ["article paused", "finder paused"]);

    let second = rig.resume(first.id, &[]).await;
    assert_eq!((second.status(), second.summary()), (RunStatus::Completed, "Good."));
    // The steps of all attempts count.
    assert_eq!(
        (second.id, second.row.attempts.len(), second.row.steps),
        (first.id, 1, 7)
    );
    let steps = called(&rig, &second).await;
    assert_eq!(steps[0].id, first.called()[0]);
    assert_eq!((steps[0].row.attempts.len(), steps[0].row.steps), (1, 5));
    assert_eq!(steps[0].row.parent_run_id, Some(second.id));
    assert_eq!(rig.tools.calls("read"), 3);
    let asked = rig.model.asked_of("finder");
    assert_eq!(asked.len(), 5);
    assert_eq!(asked[3].contents[..asked[2].contents.len()], asked[2].contents[..]);
    assert_eq!(rig.model.asked_of("writer").len(), 1);
}

/// X-6: the step limit of a flow counts the steps of all its agents together.
#[tokio::test]
async fn the_step_limit_of_a_flow_covers_all_its_steps() {
    let rig = pipeline("runConfig: { max_turns: 2 }").await;
    let run = rig.run("article", whales()).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::StepLimit))
    );
    assert_eq!((run.summary(), run.row.steps), ("An old blue whale.", 2));
    assert_eq!(rig.model.asked_of("critic").len(), 0);
}

/// The token limit of a flow counts the tokens of all its steps.
#[tokio::test]
async fn the_tokens_of_a_flow_are_those_of_its_steps() {
    let rig = pipeline("runConfig: { max_tokens: 100 }").await;
    rig.model.script("writer", [words("Costly.").costing(100)]);
    let run = rig.run("article", whales()).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::TokenLimit))
    );
    assert_eq!((run.summary(), rig.model.asked_of("critic").len()), ("Costly.", 0));
}

/// C-FR-007: a flow reports the tokens of its steps, including an interrupted one. In the log, each token is counted
/// once, by the decision of the run that used it.
#[tokio::test]
async fn a_flow_reports_the_tokens_of_its_steps_and_the_log_counts_each_once() {
    let rig = pipeline("").await;
    rig.model.script("writer", [words("Costly.").costing(100)]);
    let run = rig.run("article", whales()).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let logged = "SELECT SUM(input_tokens) FROM decision_log";
    let of_flow = format!("SELECT input_tokens FROM decision_log WHERE id = '{}'", run.id);
    let tokens = i64::try_from(run.row.usage.input_tokens).unwrap();
    assert!(tokens >= 100, "{tokens}");
    assert_eq!((rig.db.count(logged).await, rig.db.count(&of_flow).await), (tokens, 0));

    let rig = Rig::new(&[improver("max_iterations: 9\nrunConfig: { max_turns: 3 }").as_str()]).await;
    rig.model.answers("improver", |asked| match asked.before {
        0 => call("read", json!({})).costing(10),
        _ => words("a round").costing(1),
    });
    let run = rig.run("improver", json!({"query": "it"})).await;
    assert_eq!(run.status(), RunStatus::Paused);
    let tokens = i64::try_from(run.row.usage.input_tokens).unwrap();
    assert_eq!((rig.db.count(logged).await, tokens > 20), (tokens, true), "{tokens}");
}

/// X-8: the time limit of a flow covers all its steps, and a step has the flow's 30 s to sum up.
#[tokio::test]
async fn the_time_of_a_flow_is_that_of_all_its_steps() {
    let rig = pipeline("runConfig: { deadline_seconds: 60 }").await;
    rig.model.script(
        "finder",
        [call("complete_task", json!({"facts": ["old"]})).after(seconds(50))],
    );
    rig.model.script(
        "writer",
        [crate::model::hangs(), words("Half an article.").after(seconds(30))],
    );
    let run = rig.run("article", whales()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "Half an article."));
    let asked = rig.model.asked_of("writer");
    assert_eq!([asked[0].time, asked[1].time], [seconds(10), seconds(30)]);
    assert_eq!(rig.clock.passed(), seconds(90));
}

fn polished(more: &str) -> String {
    format!(
        r#"
name: polished
description: Improves a text.
flow_type: loop
steps:
  - {{ name: draft, agent: drafter, input: {{ query: "${{query}}. Critic: ${{critic}}." }} }}
  - {{ agent: critic, input: {{ query: "${{draft}}" }} }}
{more}
"#
    )
}

const DRAFTER: &str = r#"
name: drafter
description: Drafts.
promptConfig: { query: "${query}", systemPrompt: drafter }
"#;

/// X-3: a loop runs at most the configured number of rounds, by default three. Each round sees the outputs of the round
/// before.
#[tokio::test]
async fn a_loop_runs_the_number_of_rounds_of_its_definition() {
    for (more, rounds) in [("", 3), ("max_iterations: 2", 2)] {
        let rig = Rig::new(&[DRAFTER, CRITIC, polished(more).as_str()]).await;
        rig.model
            .answers("drafter", |asked| words(&format!("[{}]", task(asked))));
        rig.model
            .answers("critic", |asked| words(&format!("{} chars", task(asked).len())));
        let run = rig.run("polished", json!({"query": "Whales"})).await;
        assert_eq!(run.status(), RunStatus::Completed);
        assert_eq!((run.row.steps, run.called().len()), (2 * rounds, 2 * rounds as usize));
        let drafts = rig.model.asked_of("drafter");
        let tasks: Vec<_> = drafts.iter().map(task).collect();
        assert_eq!(tasks[..2], ["Whales. Critic: .", "Whales. Critic: 26 chars."]);
        assert_eq!(run.summary(), format!("{} chars", tasks.last().unwrap().len() + 9));
    }
}

/// X-3: an agent of the loop can end it early. Its output is the flow's output, and later steps do not run.
#[tokio::test]
async fn an_agent_ends_its_loop_early() {
    let rig = Rig::new(&[DRAFTER, CRITIC, polished("").as_str()]).await;
    rig.model.script("drafter", [words("A draft.")]);
    rig.model.script(
        "critic",
        [
            call("exit_loop", json!({})),
            call("exit_loop", json!({"result": "Perfect."})),
        ],
    );
    let run = rig.run("polished", json!({"query": "Whales"})).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Perfect."));
    assert_eq!(run.called().len(), 2);
    let asked = rig.model.asked_of("critic");
    assert_eq!(asked[0].names(), ["exit_loop"]);

    // Outside a loop, the same agent has no function to end one.
    let rig = pipeline("").await;
    rig.run("article", whales()).await;
    assert_eq!(rig.model.asked_of("critic")[0].names(), [""; 0]);
}

fn improver(more: &str) -> String {
    format!(
        r#"
name: improver
description: Improves.
promptConfig: {{ query: "Improve: ${{query}}", systemPrompt: improver }}
toolConfig: {{ tools: [read] }}
flow_type: loop
{more}
"#
    )
}

/// X-3: a loop without steps repeats its own agent, which sees the result of the previous round.
#[tokio::test]
async fn a_looping_agent_sees_the_result_of_the_previous_round() {
    let rig = Rig::new(&[improver("max_iterations: 3").as_str()]).await;
    rig.model.answers("improver", |asked| match asked.task() {
        task if task.contains("round 1 of at most 3") => words("good"),
        task if task.contains("round 2 of at most 3") => words("better"),
        _ => words("best"),
    });
    let run = rig.run("improver", json!({"query": "it"})).await;
    assert_eq!(
        (run.status(), run.summary(), run.row.steps),
        (RunStatus::Completed, "best", 3)
    );
    let asked = rig.model.asked();
    assert!(asked.iter().all(|asked| asked.names() == ["read", "exit_loop"]));
    assert!(!asked[0].task().contains("came to this"));
    assert!(
        asked[2]
            .task()
            .ends_with("The result of the previous round:\n<result>\nbetter\n</result>")
    );
    assert_eq!(rig.runs().await, ["improver completed"; 4]);
}

/// X-3, D-5, D-6: with an output schema, each round submits an output, and the last one is formatted.
#[tokio::test]
async fn a_looping_agent_with_an_output_schema_ends_with_a_formatted_output() {
    let more = r#"
outputConfig: { outputName: text, description: Text., schema: { type: object, properties: { t: { type: string } }, required: [t] } }
processOutput: "<<${t}>>"
"#;
    let rig = Rig::new(&[improver(more).as_str()]).await;
    rig.model.answers("improver", |asked| match asked.task() {
        task if task.contains("round 1") => call("complete_task", json!({"text": {"t": "good"}})),
        _ => call("exit_loop", json!({"text": {"t": "better"}})),
    });
    let run = rig.run("improver", json!({"query": "it"})).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "<<better>>"));
    assert_eq!(run.output(), json!({"t": "better"}));
    assert_eq!(rig.model.asked().len(), 2);
    assert!(
        rig.model.asked()[1]
            .task()
            .contains("<result>\n{\"t\":\"good\"}\n</result>")
    );
}

/// X-3: the step limit of a looping agent covers all its rounds.
#[tokio::test]
async fn the_step_limit_of_a_looping_agent_covers_all_rounds() {
    let rig = Rig::new(&[improver("max_iterations: 9\nrunConfig: { max_turns: 4 }").as_str()]).await;
    rig.model.answers("improver", |asked| match asked.before {
        0 => call("read", json!({})),
        _ => words("a round"),
    });
    let run = rig.run("improver", json!({"query": "it"})).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::StepLimit))
    );
    assert_eq!((run.row.steps, run.summary()), (4, "a round"));
    let run = rig.resume(run.id, &[]).await;
    // Another four: the steps of all attempts are reported, and the limit counts those of the current one.
    assert_eq!((run.status(), run.row.steps), (RunStatus::Paused, 8));
    assert_eq!(rig.model.asked().len(), 8);
    assert!(rig.model.asked()[7].task().contains("round 4 of at most 9"));
}

/// X-3: the token limit of a looping agent covers all its rounds.
#[tokio::test]
async fn the_token_limit_of_a_looping_agent_covers_all_rounds() {
    let rig = Rig::new(&[improver("max_iterations: 9\nrunConfig: { max_tokens: 100 }").as_str()]).await;
    rig.model.answers("improver", |_| words("a round").costing(60));
    let run = rig.run("improver", json!({"query": "it"})).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::TokenLimit))
    );
    assert_eq!((run.row.steps, run.summary()), (2, "a round"));
}

/// X-2. Promise: at most once. A step with an in-doubt call pauses the flow, which lists the call. The flow continues
/// after a person has settled it.
#[tokio::test]
async fn an_in_doubt_step_pauses_the_pipeline_until_a_person_settles_it() {
    let rig = pipeline("").await;
    rig.tools.script("send", [Does::LosesTheAnswer]);
    rig.model.script(
        "finder",
        [
            call("send", json!({"to": "bob"})),
            call("complete_task", json!({"facts": ["old"]})),
        ],
    );
    let first = rig.run("article", whales()).await;
    assert_eq!(
        (first.status(), first.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::Step))
    );
    assert_eq!(first.row.in_doubt.len(), 1);
    assert_eq!(
        (first.row.in_doubt[0].tool.as_str(), &first.row.in_doubt[0].parameters),
        ("send", &json!({"to": "bob"}))
    );

    let call = first.row.in_doubt[0].action_id;
    let second = rig.resume(first.id, &[(call, true)]).await;
    assert_eq!((second.status(), second.summary()), (RunStatus::Completed, "Good."));
    assert_eq!(rig.tools.calls("send"), 1);
    let asked = rig.model.asked_of("finder");
    let (_, outcome) = &asked[1].responses()[0];
    assert!(
        outcome.as_ref().unwrap()["settled"]
            .as_str()
            .unwrap()
            .contains("had its effect")
    );
}

/// X-2: a sequential agent with its own prompt and no steps is its own only step. All other fields of its definition
/// apply.
#[tokio::test]
async fn a_sequential_agent_with_a_prompt_of_its_own_runs() {
    let agent = FINDER.replace("name: finder", "name: finder\nflow_type: sequential");
    let rig = Rig::new(&[agent.as_str()]).await;
    rig.model.script(
        "finder",
        [
            call("read", json!({})),
            call("complete_task", json!({"facts": ["blue"]})),
        ],
    );
    let run = rig.run("finder", json!({"query": "whales"})).await;
    assert_eq!((run.status(), run.output()), (RunStatus::Completed, json!(["blue"])));
    assert_eq!((run.row.steps, rig.tools.calls("read")), (2, 1));
    assert_eq!(rig.runs().await, ["finder completed"]);
}

/// X-10: a step may have its own time limit, within the time that the flow has left.
#[tokio::test]
async fn a_step_may_be_given_a_time_of_its_own() {
    for (given, expected) in [
        ("", 50),
        ("timeout: 20, ", 20),
        ("timeout: 1m, ", 60),
        ("timeout: 1h, ", 100),
    ] {
        let critic = format!("{CRITIC}default_timeout: 50\n");
        let flow = format!(
            "name: flow\ndescription: d\nflow_type: sequential\ndefault_timeout: 100\nsteps:\n- {{ {given}agent: critic }}\n"
        );
        let rig = Rig::new(&[critic.as_str(), flow.as_str()]).await;
        rig.model.script("critic", [words("Good.")]);
        let run = rig.run("flow", json!({"query": "whales"})).await;
        assert_eq!(run.status(), RunStatus::Completed);
        assert_eq!(rig.model.asked_of("critic")[0].time, seconds(expected), "{given}");
    }
}
