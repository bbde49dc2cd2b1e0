//! Every acceptance scenario and edge case of surface C, end to end: real server, real tasks server over stdio and over
//! HTTP, SQLite and PostgreSQL. Only Gemini is a stand-in, and it speaks the real wire format.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::gemini::{Reply, id_of, last_tool_data};
use crate::harness::{App, Setup, spawn_app};

macro_rules! scenarios {
    ($($(#[doc = $doc:literal])+ $name:ident)+) => {
        mod stdio_sqlite { $($(#[doc = $doc])+ #[tokio::test] async fn $name() { super::$name(crate::harness::Setup::stdio_sqlite()).await })+ }
        mod http_sqlite { $($(#[doc = $doc])+ #[tokio::test] async fn $name() { super::$name(crate::harness::Setup::http_sqlite()).await })+ }
        mod stdio_postgres { $($(#[doc = $doc])+ #[tokio::test] async fn $name() { super::$name(crate::harness::Setup::stdio_postgres()).await })+ }
        mod http_postgres { $($(#[doc = $doc])+ #[tokio::test] async fn $name() { super::$name(crate::harness::Setup::http_postgres()).await })+ }
    };
}

scenarios! {
    /// C-US1-1, C-US4-1, C-FR-001, C-FR-002, C-FR-007: adding a task creates it, confirms it and logs the decision.
    adding_a_task_does_it_confirms_it_and_logs_it
    /// C-US1-2: the reply lists the user's tasks.
    showing_tasks_lists_them
    /// C-US1-3, C-US6-1: to complete a task by name, the model lists the tasks first and completes the match.
    completing_by_name_lists_first_and_completes_the_match
    /// C-US1-4: a reminder for tomorrow becomes a task with a date.
    a_reminder_for_tomorrow_becomes_a_task_with_a_date
    /// C-US2-1, C-US2-2, C-US2-3, C-US2-4, C-US4-2, C-FR-003: small talk is answered without a tool.
    small_talk_is_answered_without_a_tool
    /// C-US3-1, C-US3-2, C-US3-3, C-US4-3, C-SC-4, C-FR-004: an unclear message gets a question, and no tool is called.
    an_unclear_message_gets_a_clarifying_question_and_no_tool_call
    /// C-US5-1, C-US5-2, C-SC-5, C-FR-005: an out-of-scope request is refused with the reason.
    an_out_of_scope_request_is_refused_with_the_reason
    /// C-US5-3, C-FR-006: a request over the rate limit gets a logged refusal.
    over_the_rate_limit_is_a_logged_refusal
    /// C-US6-2: the model and the user receive a tool's failure.
    a_failing_tool_is_reported_to_the_model_and_the_user
    /// C-EC-5: a tool that fails within a sequence leaves earlier effects in place, and the failure is reported.
    a_tool_that_fails_within_a_sequence_keeps_earlier_effects_and_is_reported
    /// C-US6-3: "the first one" is the first task of the list.
    the_first_one_is_the_first_of_the_list
    /// C-EC-1, C-FR-010, C-SC-7: while Gemini is down, the answer is friendly and logged.
    while_gemini_is_down_the_answer_is_friendly_and_logged
    /// C-EC-1, C-FR-010, C-SC-7: a Gemini that hangs or is unreachable gets a friendly answer, and a record.
    a_gemini_that_hangs_or_is_unreachable_gets_a_friendly_answer_and_a_record
    /// C-EC-2, C-FR-012: malformed model output runs nothing.
    malformed_model_output_runs_nothing
    /// C-EC-3, C-FR-011, C-SC-6: an endless tool loop ends after five iterations.
    an_endless_tool_loop_ends_at_five_iterations
    /// C-EC-4: a very long message or history is a logged decision, and is not sent to the model.
    a_very_long_message_or_history_is_a_logged_decision_and_is_not_sent_to_the_model
    /// C-FR-009: a tool outside the allowlist does not run, whatever the model outputs.
    a_tool_outside_the_allowlist_does_not_run_whatever_the_model_says
    /// C-FR-008: two users do not see each other's tasks.
    two_users_do_not_see_each_others_tasks
    /// C-SC-2: if the model takes two seconds, the answer comes within three.
    a_model_that_takes_two_seconds_leaves_the_answer_within_three
    /// C, "Tests that must exist": the same input gives the same decision, except for ids and times.
    the_same_input_leads_to_the_same_decision_but_for_ids_and_times
}

async fn seeded(setup: Setup, tasks: &[&str], script: Vec<Reply>) -> App {
    let mut whole: Vec<Reply> = Vec::new();
    for task in tasks {
        whole.push(Reply::call("add_task", json!({"description": task})));
        whole.push(Reply::Text("Added."));
    }
    whole.extend(script);
    let app = spawn_app(setup.script(whole)).await;
    for task in tasks {
        let added = app.chat(&format!("add {task}")).await;
        assert_eq!(added["outcome_category"], "SUCCESS:TASK_COMPLETED", "{added}");
    }
    app
}

/// The names of all tasks, each with whether it is completed.
async fn kept(app: &App) -> Vec<(String, bool)> {
    let tasks = app.tasks().await;
    tasks.into_iter().map(|task| (task.description, task.done)).collect()
}

async fn adding_a_task_does_it_confirms_it_and_logs_it(setup: Setup) {
    let script = vec![
        Reply::call("add_task", json!({"description": "call mom"})),
        Reply::Text("I added \"call mom\" to your tasks."),
        Reply::call("list_tasks", json!({})),
        Reply::Text("1. call mom"),
    ];
    let app = spawn_app(setup.script(script)).await;
    let decision = app.chat("add a task to call mom").await;
    assert_eq!(decision["decision_type"], "INVOKE_TOOL", "{decision}");
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED");
    assert_eq!(decision["response"], "I added \"call mom\" to your tasks.");
    assert_eq!(decision["tool_calls"][0]["tool"], "add_task");
    assert_eq!(decision["tool_calls"][0]["sequence"], 1);
    assert_eq!(
        decision["tool_calls"][0]["parameters"],
        json!({"description": "call mom"})
    );
    assert_eq!(decision["tool_calls"][0]["result"]["success"], true);
    assert_eq!(decision["iterations"], 2);
    assert_eq!(decision["usage"]["input_tokens"], 200);

    let record = app.decision(&decision["decision_id"]).await;
    assert_eq!(record["outcome_category"], "SUCCESS:TASK_COMPLETED");
    assert_eq!(record["intent"], "add_task");
    let calls = app.tool_invocations(&decision["decision_id"]).await;
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(
        (&calls[0]["tool"], &calls[0]["status"]),
        (&json!("add_task"), &json!("completed"))
    );

    let listed = app.chat("show my tasks").await;
    let tasks = &listed["tool_calls"][0]["result"]["data"]["tasks"];
    assert_eq!(tasks[0]["description"], "call mom", "the task really exists: {listed}");
    assert_eq!(kept(&app).await, [("call mom".to_owned(), false)]);
}

async fn showing_tasks_lists_them(setup: Setup) {
    let script = vec![
        Reply::call("list_tasks", json!({})),
        Reply::from(|request| {
            let data = last_tool_data(request);
            assert_eq!(data["tasks"].as_array().unwrap().len(), 2, "{data}");
            Reply::Text("1. milk\n2. bread")
        }),
    ];
    let app = seeded(setup, &["milk", "bread"], script).await;
    let decision = app.chat("show my tasks").await;
    assert_eq!(decision["decision_type"], "INVOKE_TOOL");
    assert_eq!(decision["response"], "1. milk\n2. bread");
}

async fn completing_by_name_lists_first_and_completes_the_match(setup: Setup) {
    let script = vec![
        Reply::call("list_tasks", json!({})),
        Reply::from(|request| Reply::call("complete_task", json!({"id": id_of(request, "grocery")}))),
        Reply::Text("Done: grocery shopping."),
    ];
    for message in [
        "mark grocery shopping as done",
        "list tasks then complete the grocery one",
    ] {
        let app = seeded(setup.clone(), &["call mom", "grocery shopping"], script.clone()).await;
        let decision = app.chat(message).await;
        assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
        assert_eq!(decision["response"], "Done: grocery shopping.");
        let [listed, completed] = decision["tool_calls"].as_array().unwrap().as_slice() else {
            panic!("{decision}");
        };
        assert_eq!(
            (&listed["tool"], &completed["tool"]),
            (&json!("list_tasks"), &json!("complete_task"))
        );
        assert_eq!(completed["result"]["success"], true, "{decision}");
        let [mom, grocery] = app.tasks().await.try_into().unwrap();
        assert_eq!((mom.description.as_str(), mom.done), ("call mom", false));
        assert_eq!((grocery.description.as_str(), grocery.done), ("grocery shopping", true));
        assert_eq!(completed["parameters"], json!({"id": grocery.id}));
        let offered = &listed["result"]["data"]["tasks"];
        let offered: Vec<_> = offered.as_array().unwrap().iter().map(|task| &task["id"]).collect();
        assert!(
            offered.contains(&&json!(grocery.id)),
            "the id is from the list: {listed}"
        );
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(
            record["intent"], "complete_task",
            "what was done, not what was looked up for it"
        );
    }
}

async fn a_reminder_for_tomorrow_becomes_a_task_with_a_date(setup: Setup) {
    let script = vec![
        Reply::from(|request| {
            let message = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
            let day = message.split_once(", ").unwrap().1.split(' ').next().unwrap();
            let today: chrono::NaiveDate = day.parse().unwrap();
            let due = today.succ_opt().unwrap().to_string();
            Reply::call("add_task", json!({"description": "buy groceries", "due": due}))
        }),
        Reply::Text("I'll keep that for tomorrow."),
        Reply::call("list_tasks", json!({})),
        Reply::Text("1. buy groceries"),
    ];
    // Computed before and after, because the day may change in between.
    let tomorrow = || (chrono::Utc::now().date_naive() + chrono::Days::new(1)).to_string();
    let before = tomorrow();
    let app = spawn_app(setup.script(script)).await;
    let decision = app.chat("remind me to buy groceries tomorrow").await;
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
    assert_eq!(decision["response"], "I'll keep that for tomorrow.");
    let listed = app.chat("show my tasks").await;
    let tasks = &listed["tool_calls"][0]["result"]["data"]["tasks"];
    for task in [&decision["tool_calls"][0]["result"]["data"]["task"], &tasks[0]] {
        assert_eq!(task["description"], "buy groceries", "{task}");
        let due = task["due"].as_str().unwrap();
        assert!([before.as_str(), &tomorrow()].contains(&due), "{task}");
    }
}

async fn small_talk_is_answered_without_a_tool(setup: Setup) {
    let app = spawn_app(setup.script(vec![Reply::Text("Hello! I can look after your tasks.")])).await;
    for message in [
        "hi there",
        "what can you help me with?",
        "tell me a joke",
        "hello, how are you?",
    ] {
        let decision = app.chat(message).await;
        assert_eq!(decision["decision_type"], "RESPOND_ONLY");
        assert_eq!(decision["outcome_category"], "SUCCESS:RESPONSE_GIVEN");
        assert_eq!(decision["tool_calls"], json!([]));
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(
            [&record["decision_type"], &record["outcome_category"], &record["intent"]],
            ["RESPOND_ONLY", "SUCCESS:RESPONSE_GIVEN", "respond"]
        );
        assert!(app.tool_invocations(&decision["decision_id"]).await.is_empty());
    }
}

async fn an_unclear_message_gets_a_clarifying_question_and_no_tool_call(setup: Setup) {
    let ask = json!({"question": "Shall I add it as a task, or find one?", "kind": "UNCLEAR_INTENT"});
    let app = spawn_app(setup.script(vec![Reply::call("request_clarification", ask)])).await;
    for message in ["groceries", "milk and eggs", "that one"] {
        let decision = app.chat(message).await;
        assert_eq!(decision["decision_type"], "REQUEST_CLARIFICATION");
        assert_eq!(decision["outcome_category"], "AMBIGUITY:UNCLEAR_INTENT");
        assert_eq!(decision["response"], "Shall I add it as a task, or find one?");
        assert_eq!(decision["tool_calls"], json!([]));
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(
            [&record["decision_type"], &record["outcome_category"], &record["intent"]],
            ["REQUEST_CLARIFICATION", "AMBIGUITY:UNCLEAR_INTENT", "clarify"]
        );
        assert!(app.tool_invocations(&decision["decision_id"]).await.is_empty());
    }
}

async fn an_out_of_scope_request_is_refused_with_the_reason(setup: Setup) {
    let refuse = json!({"message": "I can only help with your tasks.", "kind": "OUT_OF_SCOPE"});
    let app = spawn_app(setup.script(vec![Reply::call("refuse", refuse)])).await;
    for message in ["what's the weather?", "delete all my data permanently"] {
        let decision = app.chat(message).await;
        assert_eq!(decision["decision_type"], "REFUSE");
        assert_eq!(decision["outcome_category"], "REFUSAL:OUT_OF_SCOPE");
        assert_eq!(decision["response"], "I can only help with your tasks.");
        assert_eq!(decision["tool_calls"], json!([]));
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(
            [&record["decision_type"], &record["outcome_category"], &record["intent"]],
            ["REFUSE", "REFUSAL:OUT_OF_SCOPE", "refuse"]
        );
        assert!(app.tool_invocations(&decision["decision_id"]).await.is_empty());
    }
}

async fn over_the_rate_limit_is_a_logged_refusal(setup: Setup) {
    let app = spawn_app(setup.rate(60, 2).script(vec![Reply::Text("Hello.")])).await;
    for _ in 0..2 {
        assert_eq!(app.chat("hi").await["outcome_category"], "SUCCESS:RESPONSE_GIVEN");
    }
    let (status, headers, decision) = app.post(&json!({"message": "hi", "user_id": "ann"})).await;
    assert_eq!(status, 429);
    assert_eq!(headers["retry-after"], "1");
    assert!(headers.contains_key("ratelimit") && headers.contains_key("ratelimit-policy"));
    assert_eq!(decision["decision_type"], "REFUSE");
    assert_eq!(decision["outcome_category"], "REFUSAL:RATE_LIMITED");
    assert_eq!(
        app.decision(&decision["decision_id"]).await["outcome_category"],
        "REFUSAL:RATE_LIMITED"
    );
    assert_eq!(app.gemini.requests().len(), 2, "the model is not asked");
}

async fn a_failing_tool_is_reported_to_the_model_and_the_user(setup: Setup) {
    let script = vec![
        Reply::call("complete_task", json!({"id": "no-such-task"})),
        Reply::from(|request| {
            let last = request["contents"].as_array().unwrap().last().unwrap();
            let error = &last["parts"][0]["functionResponse"]["response"]["error"];
            assert_eq!(error["code"], "tool_error", "{last}");
            Reply::Text("I could not find that task.")
        }),
        Reply::call("complete_task", json!({"id": "no-such-task"})),
        Reply::call("add_task", json!({"description": "milk"})),
        Reply::call("complete_task", json!({"title": "milk"})),
        Reply::Text("It is there and done now."),
    ];
    let app = spawn_app(setup.script(script)).await;
    let decision = app.chat("mark no such task as done").await;
    assert_eq!(decision["decision_type"], "INVOKE_TOOL");
    assert_eq!(decision["outcome_category"], "ERROR:TOOL_INVOCATION");
    assert_eq!(decision["response"], "I could not find that task.");
    assert_eq!(decision["tool_calls"][0]["result"]["success"], false);
    assert_eq!(
        app.tool_invocations(&decision["decision_id"]).await[0]["status"],
        "failed"
    );

    let repaired = app.chat("again").await;
    assert_eq!(repaired["outcome_category"], "SUCCESS:TASK_COMPLETED", "{repaired}");
}

async fn a_tool_that_fails_within_a_sequence_keeps_earlier_effects_and_is_reported(setup: Setup) {
    let script = vec![
        Reply::call("list_tasks", json!({})),
        Reply::from(|request| {
            assert_eq!(last_tool_data(request)["tasks"][0]["description"], "milk");
            Reply::call("complete_task", json!({"id": "no-such-task"}))
        }),
        Reply::from(|request| {
            let last = request["contents"].as_array().unwrap().last().unwrap();
            let error = &last["parts"][0]["functionResponse"]["response"]["error"];
            assert_eq!(error["code"], "tool_error", "{last}");
            Reply::Text("Your only task is milk. I could not find the grocery one.")
        }),
    ];
    let app = seeded(setup, &["milk"], script).await;
    let decision = app.chat("list tasks then complete the grocery one").await;
    assert_eq!(decision["decision_type"], "INVOKE_TOOL", "{decision}");
    assert_eq!(decision["outcome_category"], "ERROR:TOOL_INVOCATION", "{decision}");
    assert_eq!(
        decision["response"],
        "Your only task is milk. I could not find the grocery one."
    );
    let calls = app.tool_invocations(&decision["decision_id"]).await;
    let mut states: Vec<_> = calls
        .iter()
        .map(|call| (call["tool"].as_str().unwrap(), call["status"].as_str().unwrap()))
        .collect();
    states.sort_unstable();
    assert_eq!(states, [("complete_task", "failed"), ("list_tasks", "completed")]);
    assert_eq!(
        app.decision(&decision["decision_id"]).await["outcome_category"],
        "ERROR:TOOL_INVOCATION"
    );
    assert_eq!(kept(&app).await, [("milk".to_owned(), false)]);
}

async fn the_first_one_is_the_first_of_the_list(setup: Setup) {
    let script = vec![
        Reply::call("list_tasks", json!({})),
        Reply::from(|request| {
            let data = last_tool_data(request);
            Reply::call("complete_task", json!({"id": data["tasks"][0]["id"]}))
        }),
        Reply::Text("The first one is done."),
    ];
    let app = seeded(setup, &["milk", "bread"], script).await;
    let decision = app.chat("show my tasks and then mark the first one complete").await;
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
    let [listed, completed] = decision["tool_calls"].as_array().unwrap().as_slice() else {
        panic!("{decision}");
    };
    assert_eq!(
        (&listed["tool"], &completed["tool"]),
        (&json!("list_tasks"), &json!("complete_task"))
    );
    let first = &listed["result"]["data"]["tasks"][0];
    assert_eq!(completed["parameters"], json!({"id": first["id"]}));
    let done: Vec<_> = app.tasks().await.into_iter().filter(|task| task.done).collect();
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(
        (&json!(done[0].id), &json!(done[0].description)),
        (&first["id"], &first["description"])
    );
}

/// The reply without a model: the text of the template, without details of the failure.
const NO_MODEL: &str = "I can't work on your message just now, because a service I depend on isn't answering. \
                        I won't guess what to do, so please try again in a few minutes.";
const TOO_SLOW: &str = "Working on your message took longer than I can wait, so I stopped. \
                        Please try again; a shorter request may help.";

async fn while_gemini_is_down_the_answer_is_friendly_and_logged(setup: Setup) {
    let script = vec![Reply::from(|request| {
        match request["contents"].to_string().contains("call mom") {
            true => Reply::error(503, "UNAVAILABLE", json!([])),
            false => Reply::Text("Hello."),
        }
    })];
    let app = spawn_app(setup.script(script)).await;
    let decision = app.chat("add a task to call mom").await;
    assert_eq!(decision["decision_type"], "RESPOND_ONLY");
    assert_eq!(decision["outcome_category"], "ERROR:MODEL_UNAVAILABLE");
    assert_eq!(decision["response"], NO_MODEL);
    assert!(!decision.to_string().contains("canary-provider-message"), "{decision}");
    assert!(app.gemini.requests().len() > 1, "503 is retried");
    let record = app.decision(&decision["decision_id"]).await;
    assert_eq!(record["outcome_category"], "ERROR:MODEL_UNAVAILABLE");
    assert_eq!(kept(&app).await, [], "nothing was guessed");
    assert_eq!(app.get("/livez").await.0, 200, "the service continues");
    let afterwards = app.chat("hi").await;
    assert_eq!(afterwards["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{afterwards}");
}

async fn a_gemini_that_hangs_or_is_unreachable_gets_a_friendly_answer_and_a_record(setup: Setup) {
    // Reserved but not listening: connections to it are refused.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = format!("http://{}", held.local_addr().unwrap());
    let hanging = setup.clone().env("GAVEL_MODEL_FIRST_BYTE_SECONDS", "0.3");
    for (setup, outcome, words) in [
        (hanging.script(vec![Reply::Hang]), "ERROR:MODEL_TIMEOUT", TOO_SLOW),
        (setup.env("GEMINI_BASE_URL", &dead), "ERROR:MODEL_UNAVAILABLE", NO_MODEL),
    ] {
        let app = spawn_app(setup).await;
        let begun = Instant::now();
        let decision = app.chat("add a task to call mom").await;
        // The time limit of a message is 30 s.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(
            (&decision["decision_type"], &decision["outcome_category"]),
            (&json!("RESPOND_ONLY"), &json!(outcome)),
            "{decision}"
        );
        assert_eq!(decision["response"], words, "{decision}");
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(
            (&record["status"], &record["outcome_category"]),
            (&json!("closed"), &json!(outcome)),
            "{record}"
        );
        assert_eq!(kept(&app).await, []);
        assert_eq!(app.get("/livez").await.0, 200, "the service continues");
    }
}

async fn malformed_model_output_runs_nothing(setup: Setup) {
    let cut = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"add_task","args":{"description":"x"}}}]},"finishReason":"MAX_TOKENS"}]}"#;
    let script = vec![
        Reply::Raw(200, "{\"candidates\": [".to_owned()),
        Reply::Raw(200, cut.to_owned()),
        Reply::finish("MALFORMED_RESPONSE"),
    ];
    for reply in script {
        let app = spawn_app(setup.clone().script(vec![reply])).await;
        let decision = app.chat("add x").await;
        assert_eq!(decision["outcome_category"], "ERROR:MALFORMED_OUTPUT", "{decision}");
        assert_eq!(decision["tool_calls"], json!([]));
    }
    let off_schema = vec![
        Reply::call("add_task", json!({"description": 7, "colour": "red"})),
        Reply::Text("That did not work."),
    ];
    let app = spawn_app(setup.script(off_schema)).await;
    let decision = app.chat("add x").await;
    assert_eq!(
        decision["tool_calls"][0]["result"]["error"]["code"], "invalid_arguments",
        "{decision}"
    );
    assert_eq!(decision["decision_type"], "RESPOND_ONLY", "nothing ran");
}

async fn an_endless_tool_loop_ends_at_five_iterations(setup: Setup) {
    let app = spawn_app(setup.script(vec![Reply::call("list_tasks", json!({}))])).await;
    let decision = app.chat("loop").await;
    assert_eq!(decision["outcome_category"], "ERROR:LOOP_LIMIT");
    assert_eq!(decision["iterations"], 5);
    assert_eq!(app.gemini.requests().len(), 5);
    assert!(decision["response"].as_str().unwrap().contains("5"), "{decision}");
}

async fn a_very_long_message_or_history_is_a_logged_decision_and_is_not_sent_to_the_model(setup: Setup) {
    const KIB: usize = 1024;
    let history = |entries: usize, bytes: usize| {
        let content = "x".repeat(bytes);
        (0..entries)
            .map(|_| json!({"role": "user", "content": content}))
            .collect::<Vec<_>>()
    };
    let app = spawn_app(setup.script(vec![Reply::Text("Hello.")])).await;
    let over = [
        (json!({"message": "x".repeat(32 * KIB + 1)}), "message"),
        (json!({"message": "hi", "history": history(201, 1)}), "history"),
        (
            json!({"message": "hi", "history": history(2, 128 * KIB + 1)}),
            "history",
        ),
    ];
    for (mut body, subject) in over {
        body["user_id"] = json!("ann");
        let (status, _, decision) = app.post(&body).await;
        assert_eq!(status, 200, "{decision}");
        assert_eq!(decision["outcome_category"], "ERROR:USER_INPUT", "{decision}");
        let words = decision["response"].as_str().unwrap();
        assert!(words.contains(&format!("the {subject} may be at most")), "{words}");
        assert_eq!(
            app.decision(&decision["decision_id"]).await["outcome_category"],
            "ERROR:USER_INPUT"
        );
    }
    assert_eq!(app.gemini.requests().len(), 0);
    // Values just within the limits are accepted.
    for (message, history) in [
        ("x".repeat(32 * KIB), history(0, 0)),
        ("hi".to_owned(), history(200, 1)),
        ("hi".to_owned(), history(2, 128 * KIB)),
    ] {
        let body = json!({"message": message, "user_id": "ann", "history": history});
        let (_, _, decision) = app.post(&body).await;
        assert_eq!(decision["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{decision}");
    }
    assert_eq!(app.gemini.requests().len(), 3);
}

async fn a_tool_outside_the_allowlist_does_not_run_whatever_the_model_says(setup: Setup) {
    let script = vec![
        Reply::Calls(vec![
            ("drop_tables", json!({})),
            ("add_task ", json!({"description": "x"})),
            ("аdd_task", json!({"description": "x"})),
        ]),
        Reply::Text("I am not able to do that."),
        Reply::call("list_tasks", json!({})),
        Reply::Text("Nothing."),
    ];
    let app = spawn_app(setup.script(script)).await;
    let decision = app.chat("drop the tables").await;
    assert_eq!(decision["decision_type"], "REFUSE", "{decision}");
    assert_eq!(decision["outcome_category"], "REFUSAL:POLICY_DENIED");
    for call in decision["tool_calls"].as_array().unwrap() {
        assert_eq!(call["result"]["error"]["code"], "unknown_tool");
    }
    let listed = app.chat("list").await;
    assert_eq!(listed["tool_calls"][0]["result"]["data"]["tasks"], json!([]));
}

async fn two_users_do_not_see_each_others_tasks(setup: Setup) {
    let script = vec![
        Reply::call("add_task", json!({"description": "secret plan"})),
        Reply::Text("Added."),
        Reply::call("list_tasks", json!({})),
        Reply::Text("Nothing."),
    ];
    let app = spawn_app(setup.script(script)).await;
    app.chat_as("ann", "add secret plan").await;
    let listed = app.chat_as("bob", "list").await;
    assert_eq!(
        listed["tool_calls"][0]["result"]["data"]["tasks"],
        json!([]),
        "{listed}"
    );
    assert!(
        !app.gemini
            .requests()
            .last()
            .unwrap()
            .to_string()
            .contains("secret plan"),
        "nothing is kept between requests"
    );
}

async fn a_model_that_takes_two_seconds_leaves_the_answer_within_three(setup: Setup) {
    let second = |reply| Reply::After(Duration::from_secs(1), Box::new(reply));
    let app = spawn_app(setup.script(vec![
        second(Reply::call("add_task", json!({"description": "call mom"}))),
        second(Reply::Text("Added.")),
    ]))
    .await;
    let asked = Instant::now();
    let decision = app.chat("add a task to call mom").await;
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
    let reported = decision["duration_ms"].as_u64().unwrap();
    assert!((2000..3000).contains(&reported), "{decision}");
}

/// Removes the values that differ each time.
fn structure(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| name != "id" && !["_id", "_at", "_ms"].iter().any(|end| name.ends_with(end)));
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

async fn the_same_input_leads_to_the_same_decision_but_for_ids_and_times(setup: Setup) {
    let script = vec![
        Reply::Calls(vec![
            ("add_task", json!({"description": "call mom", "priority": "high"})),
            ("drop_tables", json!({})),
        ]),
        Reply::call("list_tasks", json!({})),
        Reply::Text("It is the only one."),
    ];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let app = spawn_app(setup.clone().script(script.clone())).await;
        let decision = app.chat("add a task to call mom and show me all").await;
        assert_eq!(decision["tool_calls"].as_array().unwrap().len(), 3, "{decision}");
        let record = app.decision(&decision["decision_id"]).await;
        let calls = app.tool_invocations(&decision["decision_id"]).await;
        let asked = app.gemini.requests().swap_remove(0);
        seen.push((asked, structure(decision), structure(record), structure(calls.into())));
    }
    assert_eq!(seen[0], seen[1]);
}
