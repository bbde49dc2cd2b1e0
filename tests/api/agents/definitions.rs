//! `/api/projects/{project}/agents…`: definitions by API and by files (D-1 to D-10).

use serde_json::{Value, json};

use super::{HELPER, both, execute, id};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};

const SELLER: &str = "---\nname: seller\ndescription: Sells.\n---\n\nSell it.\n";
const PATH: &str = "/api/projects/shop/agents/seller";

async fn put(app: &App, path: &str, media: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Answer {
    let request = app.request("PUT", path, headers).header("content-type", media);
    Answer::of(request.body(body)).await
}

async fn put_seller(app: &App, words: &str, headers: &[(&str, &str)]) -> Answer {
    put(app, PATH, "text/markdown", headers, SELLER.replace("Sell it.", words)).await
}

async fn get(app: &App, path: &str) -> Answer {
    Answer::of(app.request("GET", path, &[])).await
}

/// D-7: a suspicious value in a definition does not block the put. It is reported as a warning, for the new definition
/// only.
#[tokio::test]
async fn a_put_returns_the_warnings_of_its_definition() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let with = |more: &str| SELLER.replace("description: Sells.", &format!("description: Sells.\n{more}"));
        let put = async |body: String| put(&app, PATH, "text/markdown", &[], body).await;
        assert_eq!(put(SELLER.to_owned()).await.expect(201)["warnings"], json!([]));
        let odd = put(with("model: claude-opus-4")).await.expect(200);
        assert_eq!(
            odd["warnings"],
            json!([{
                "pointer": "/model",
                "detail": "line 4: found \"claude-opus-4\", which is not a Google model; allowed: a model of Gemini, or no model: \
                           the configured one"
            }]),
            "{odd}"
        );
        let other = Answer::of(
            app.request("PUT", "/api/projects/shop/agents/buyer", &[])
                .header("content-type", "text/markdown")
                .body(SELLER.replace("seller", "buyer")),
        );
        assert_eq!(other.await.expect(201)["warnings"], json!([]));
        let restored = Answer::of(app.request("POST", &format!("{PATH}/versions/2/restore"), &[]));
        assert_eq!(restored.await.expect(200)["warnings"].as_array().map(Vec::len), Some(1));
    }
}

/// D-P: every format is accepted and returned, and all of them mean the same definition.
#[tokio::test]
async fn a_definition_is_put_and_read_in_every_format() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let first = put_seller(&app, "Sell it.", &[]).await;
        assert_eq!(first.header("etag"), "\"1\"");
        let first = first.expect(201);
        assert_eq!(
            (
                &first["version"],
                &first["source"],
                &first["available"],
                &first["project_id"]
            ),
            (&json!(1), &json!("api"), &json!(true), &json!("shop")),
            "{first}"
        );
        assert_eq!(
            first["definition"]["promptConfig"]["systemPrompt"], "Sell it.",
            "{first}"
        );
        for media in [
            "application/json",
            "application/yaml",
            "text/markdown",
            "application/x-protobuf",
        ] {
            let request = app.request("GET", PATH, &[("accept", media)]);
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(
                answer.headers()["content-type"].to_str().unwrap().split(';').next(),
                Some(media)
            );
            assert_eq!(answer.headers()["etag"], "\"1\"");
            let mut bytes = answer.bytes().await.unwrap().to_vec();
            if media == "application/json" {
                // The agent resource, one field of which is the definition.
                let agent: Value = serde_json::from_slice(&bytes).unwrap();
                bytes = agent["definition"].to_string().into_bytes();
            }
            // The same content creates no new version, in any format.
            let again = put(&app, PATH, media, &[], bytes).await.expect(200);
            assert_eq!(again, first, "{media}");
        }
        for invalid in ["text/plain", "application/xml", ""] {
            put(&app, PATH, invalid, &[], SELLER)
                .await
                .problem(415, "unsupported_media_type");
        }
    }
}

/// Versions are kept and an earlier one can be restored. A caller that would overwrite an unseen version is rejected.
#[tokio::test]
async fn versions_are_kept_restored_and_protected_by_if_match() {
    for setup in both() {
        let app = spawn_app(setup).await;
        put_seller(&app, "One.", &[("if-match", "\"1\"")])
            .await
            .problem(412, "version_conflict");
        put_seller(&app, "One.", &[("if-none-match", "*")]).await.expect(201);
        put_seller(&app, "Two.", &[("if-none-match", "*")])
            .await
            .problem(412, "version_conflict");
        put_seller(&app, "Two.", &[("if-match", "\"7\"")])
            .await
            .problem(412, "version_conflict");
        let second = put_seller(&app, "Two.", &[("if-match", "\"1\"")]).await;
        assert_eq!(second.header("etag"), "\"2\"");
        second.expect(200);
        for (name, value) in [("if-match", "1"), ("if-match", "\"x\""), ("if-none-match", "\"1\"")] {
            put_seller(&app, "Three.", &[(name, value)])
                .await
                .problem(400, "invalid_request");
        }
        let page = get(&app, &format!("{PATH}/versions")).await.expect(200);
        assert_eq!(page["next_page_token"], Value::Null, "{page}");
        let versions = page["versions"].as_array().unwrap();
        let reported: Vec<_> = versions
            .iter()
            .map(|version| {
                (
                    version["version"].as_i64().unwrap(),
                    version["current"].as_bool().unwrap(),
                )
            })
            .collect();
        assert_eq!(reported, [(2, true), (1, false)]);
        // Each version returns its own content.
        for (listed, words) in versions.iter().zip(["Two.", "One."]) {
            assert_eq!(listed.get("definition"), None, "{listed}");
            let one = get(&app, &format!("{PATH}/versions/{}", listed["version"])).await;
            let mut one = one.expect(200);
            let definition = one.as_object_mut().unwrap().remove("definition").unwrap();
            assert_eq!(definition["promptConfig"]["systemPrompt"], words, "{definition}");
            assert_eq!(one, *listed);
        }
        for missing in ["9", "0", "x"] {
            get(&app, &format!("{PATH}/versions/{missing}"))
                .await
                .problem(404, "not_found");
        }
        let restore = async |version: &str| {
            let path = format!("{PATH}/versions/{version}/restore");
            Answer::of(app.request("POST", &path, &[])).await
        };
        let restored = restore("1").await.expect(200);
        assert_eq!(
            (&restored["version"], &restored["definition_hash"]),
            (&json!(3), &versions[1]["definition_hash"]),
            "{restored}"
        );
        let mut now = get(&app, PATH).await.expect(200);
        now["warnings"] = json!([]);
        assert_eq!(now, restored);
        for missing in ["9", "0", "x"] {
            let problem = restore(missing).await.problem(404, "not_found");
            let reported = format!("There is no version \"{missing}\" of an agent \"seller\" in the project \"shop\"");
            assert!(problem["detail"].as_str().unwrap().starts_with(&reported), "{problem}");
        }
    }
}

/// Versions are paged, however many there are.
#[tokio::test]
async fn versions_come_in_pages() {
    for setup in both() {
        let app = spawn_app(setup).await;
        for words in ["One.", "Two.", "Three."] {
            put_seller(&app, words, &[]).await;
        }
        let (mut reported, mut token) = (Vec::new(), String::new());
        loop {
            let page = get(&app, &format!("{PATH}/versions?page_size=2{token}"))
                .await
                .expect(200);
            let versions = page["versions"].as_array().unwrap();
            assert!((1..=2).contains(&versions.len()), "{page}");
            reported.extend(
                versions
                    .iter()
                    .map(|one| (one["version"].clone(), one["current"].clone())),
            );
            match page["next_page_token"].as_str() {
                Some(next) => token = format!("&page_token={next}"),
                None => break,
            }
        }
        assert_eq!(
            reported,
            [
                (json!(3), json!(true)),
                (json!(2), json!(false)),
                (json!(1), json!(false))
            ]
        );
        for invalid in [
            "page_size=0",
            "page_token=x",
            "filter=x",
            "order_by=created_at",
            "before=1",
        ] {
            let problem = get(&app, &format!("{PATH}/versions?{invalid}"))
                .await
                .problem(400, "invalid_request");
            assert_eq!(
                problem["errors"][0]["pointer"],
                invalid.split('=').next().unwrap(),
                "{problem}"
            );
        }
    }
}

/// A definition that exceeds 1 MiB in its stored form is rejected, and nothing is stored.
#[tokio::test]
async fn a_definition_too_long_in_its_json_form_is_refused() {
    for setup in both() {
        let app = spawn_app(setup).await;
        // A quote is one byte in a YAML block, and two in JSON.
        let of = |quotes: usize| {
            format!(
                "name: seller\ndescription: d\nsystem_prompt: |\n  {}\n",
                "\"".repeat(quotes)
            )
        };
        let too_long = put(&app, PATH, "application/yaml", &[], of(600_000)).await;
        let problem = too_long.problem(422, "invalid_definition");
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(
            detail.contains("found 1200") && detail.contains("at most 1 MiB (1048576 bytes)"),
            "{problem}"
        );
        get(&app, PATH).await.problem(404, "not_found");
        put(&app, PATH, "application/yaml", &[], of(520_000)).await.expect(201);
        get(&app, PATH).await.expect(200);
        let run = app
            .trigger_with(&format!("{PATH}/trigger"), &[], &json!({"query": "x"}))
            .await;
        assert_eq!(run.expect(200)["status"], "completed");
    }
}

/// Definitions are read only after a change, not for each run: here they cannot be read at all.
#[tokio::test]
async fn definitions_that_have_not_changed_are_not_read_again() {
    for setup in both() {
        let app = spawn_app(setup).await;
        put_seller(&app, "Sell it.", &[]).await.expect(201);
        get(&app, PATH).await.expect(200);
        execute(&app, "ALTER TABLE agent_definition RENAME COLUMN definition TO hidden").await;
        let run = app
            .trigger_with(&format!("{PATH}/trigger"), &[], &json!({"query": "x"}))
            .await;
        assert_eq!(run.expect(200)["status"], "completed");
        execute(&app, "ALTER TABLE agent_definition RENAME COLUMN hidden TO definition").await;
        put_seller(&app, "Sell more.", &[]).await.expect(200);
        assert_eq!(get(&app, PATH).await.expect(200)["version"], 2);
    }
}

/// All agents of a project are checked together, so their number is limited. Existing agents can still be changed at
/// the limit.
#[tokio::test]
async fn a_project_has_a_thousand_agents_by_the_api_at_most() {
    for setup in both() {
        let app = spawn_app(setup).await;
        put_seller(&app, "Sell it.", &[]).await.expect(201);
        let copies = |from: u32, to: u32| {
            format!(
                "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to}) \
                 INSERT INTO agent_definition (tenant, project_id, agent_id, version, id, hash, definition, author, created_at) \
                 SELECT tenant, project_id, 'a' || i, 1, 'id' || i, hash, replace(definition, '\"seller\"', '\"a' || i || '\"'), \
                 author, created_at FROM agent_definition, n WHERE agent_id = 'seller'"
            )
        };
        let other = "/api/projects/shop/agents/other";
        let words = SELLER.replace("seller", "other");
        execute(&app, &copies(2, 1000)).await;
        let problem = put(&app, other, "text/markdown", &[], words.clone()).await;
        let problem = problem.problem(409, "too_many_agents");
        assert!(problem["detail"].as_str().unwrap().contains("1000"), "{problem}");
        put_seller(&app, "Sell more.", &[]).await.expect(200);
        // Another project has its own limit.
        let elsewhere = put(
            &app,
            "/api/projects/elsewhere/agents/other",
            "text/markdown",
            &[],
            words.clone(),
        )
        .await;
        elsewhere.expect(201);
        execute(&app, "DELETE FROM agent_definition WHERE agent_id = 'a7'").await;
        put(&app, other, "text/markdown", &[], words).await.expect(201);
    }
}

/// Promise: recorded. A completed put is confirmed, even if the store can no longer be read.
#[tokio::test]
async fn a_completed_put_is_confirmed_even_if_the_store_cannot_be_read() {
    let [setup, _] = both();
    let app = spawn_app(setup).await;
    // The row exists but cannot be read.
    let trigger = "CREATE TRIGGER unreadable AFTER INSERT ON agent_definition BEGIN \
                   UPDATE agent_definition SET version = 'x' WHERE id = new.id; END";
    execute(&app, trigger).await;
    let put = put_seller(&app, "Sell it.", &[]).await;
    assert_eq!(put.header("etag"), "\"1\"");
    let put = put.expect(201);
    assert_eq!((&put["version"], &put["available"]), (&json!(1), &json!(true)), "{put}");
    get(&app, PATH).await.problem(503, "record_unavailable");
}

/// A version is self-contained, and its hash covers all of it. A schema that it names is embedded, so changes to the
/// server's file do not affect it. It can be restored without the file.
#[tokio::test]
async fn a_version_embeds_the_schema_that_it_names() {
    const JUDGE: &str = "name: judge\ndescription: Judges.\nsystem_prompt: You judge.\noutputConfig:\n  outputName: verdict\n  \
                         description: d\n  schema: verdict\n";
    let schema = json!({"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]});
    for setup in both() {
        let script = Reply::from(|request| {
            assert!(request["tools"].to_string().contains("\"good\""), "{request}");
            Reply::call("complete_task", json!({"verdict": {"good": true}}))
        });
        let setup = setup.agent("schemas/verdict.json", &schema.to_string());
        let app = spawn_app(setup.script(vec![script])).await;
        let path = "/api/projects/shop/agents/judge";
        let first = put(&app, path, "application/yaml", &[], JUDGE).await.expect(201);
        assert_eq!(first["definition"]["outputConfig"]["schema"], schema, "{first}");
        // By name or embedded, it is the same definition.
        let again = put(&app, path, "application/json", &[], first["definition"].to_string()).await;
        assert_eq!(again.expect(200), first);
        assert_eq!(put(&app, path, "application/yaml", &[], JUDGE).await.expect(200), first);
        put(&app, path, "application/yaml", &[], JUDGE.replace("Judges", "Rules"))
            .await
            .expect(200);
        std::fs::remove_file(app.directory.path().join("agents/schemas/verdict.json")).unwrap();
        // The files are reread once a second. After that no new definition can name the schema.
        until("the schema to be removed", || async {
            let other = JUDGE.replace("Judges", "Decides").replace("name: judge", "name: other");
            let answer = put(&app, "/api/projects/other/agents/other", "application/yaml", &[], other).await;
            answer.status == 422
        })
        .await;
        let trigger = format!("{path}/trigger");
        let run = app
            .trigger_with(&trigger, &[], &json!({"query": "x"}))
            .await
            .expect(200);
        assert_eq!(
            (&run["status"], &run["output"]),
            (&json!("completed"), &json!({"good": true})),
            "{run}"
        );
        let restore = app.request("POST", &format!("{path}/versions/1/restore"), &[]);
        let restored = Answer::of(restore).await.expect(200);
        assert_eq!(restored["definition_hash"], first["definition_hash"], "{restored}");
        let run = app
            .trigger_with(&trigger, &[], &json!({"query": "x"}))
            .await
            .expect(200);
        assert_eq!(run["status"], "completed", "{run}");
    }
}

/// A required field that is missing, null, blank or of another type is named in `errors`, in any format.
#[tokio::test]
async fn a_required_field_without_a_valid_value_is_named_in_the_errors() {
    let app = spawn_app(both()[0].clone()).await;
    let right = json!({"name": "seller", "description": "Sells.", "promptConfig": {"systemPrompt": "Sell it."}});
    for pointer in ["/name", "/description", "/promptConfig/systemPrompt"] {
        for value in [json!(null), json!(""), json!("  "), json!(5), json!([]), json!({})] {
            let mut invalid = right.clone();
            *invalid.pointer_mut(pointer).unwrap() = value.clone();
            for media in ["application/json", "application/yaml"] {
                let problem = put(&app, PATH, media, &[], invalid.to_string())
                    .await
                    .problem(422, "invalid_definition");
                let errors = problem["errors"]
                    .as_array()
                    .unwrap_or_else(|| panic!("{pointer} = {value}: {problem}"));
                let reported = |error: &Value| {
                    error["pointer"] == pointer && error["detail"].as_str().unwrap().starts_with("line 1: found ")
                };
                assert!(
                    errors.len() == 1 && reported(&errors[0]),
                    "{pointer} = {value}: {problem}"
                );
            }
        }
    }
    get(&app, PATH).await.problem(404, "not_found");
}

/// D-1: an agent named in `tools` is a called agent, and its definition is kept with the run.
#[tokio::test]
async fn an_agent_named_in_tools_is_shown_and_run_as_a_called_agent() {
    let script = vec![
        Reply::call("seller", json!({"query": "milk", "timeout": 20})),
        Reply::Text("Sold."),
        Reply::Text("It is sold."),
    ];
    let app = spawn_app(both()[0].clone().script(script)).await;
    put_seller(&app, "Sell it.", &[]).await.expect(201);
    let boss = "---\nname: boss\ndescription: Leads.\ntools: [list_tasks, seller]\n---\n\nLead.\n";
    let put = put(&app, "/api/projects/shop/agents/boss", "text/markdown", &[], boss)
        .await
        .expect(201);
    assert_eq!(
        (&put["tools"], &put["calls"]),
        (&json!(["list_tasks"]), &json!(["seller"])),
        "{put}"
    );
    assert_eq!(
        put["definition"]["toolConfig"]["tools"],
        json!(["list_tasks", "seller"]),
        "{put}"
    );
    let run = app
        .trigger_with("/api/projects/shop/agents/boss/trigger", &[], &json!({"query": "x"}))
        .await
        .expect(200);
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("It is sold.")),
        "{run}"
    );
    // An agent with the name of a server's tool is an error that names both.
    let named = SELLER.replace("name: seller", "name: list_tasks");
    self::put(
        &app,
        "/api/projects/shop/agents/list_tasks",
        "text/markdown",
        &[],
        named,
    )
    .await
    .expect(201);
    let boss = get(&app, "/api/projects/shop/agents/boss").await.expect(200);
    assert_eq!(boss["available"], false, "{boss}");
    let reason = boss["unavailable_reason"].as_str().unwrap();
    assert!(
        reason.contains("the agent list_tasks and of a tool of the server tasks"),
        "{reason}"
    );
}

/// Every error is reported at once with its location, and nothing is stored.
#[tokio::test]
async fn an_invalid_definition_is_refused_with_every_error() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let invalid =
            "---\nname: seller\ncolour: red\ntemp: hot\nquery: \"${nothing}\"\nsub_agents: [stranger]\n---\n\nSell.\n";
        let problem = put(&app, PATH, "text/markdown", &[], invalid)
            .await
            .problem(422, "invalid_definition");
        let errors = problem["errors"].as_array().unwrap();
        let mut fields: Vec<_> = errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect();
        fields.sort_unstable();
        for field in ["/colour", "/description", "/temp"] {
            assert!(fields.contains(&field), "{field}: {problem}");
        }
        let colour = errors.iter().find(|error| error["pointer"] == "/colour").unwrap();
        assert!(
            colour["detail"].as_str().unwrap().starts_with("line 3: found"),
            "{problem}"
        );
        // As in `gavel agents validate`, missing references and a name that differs from the path are among the errors.
        assert!(fields.contains(&"/sub_agents/0"), "{problem}");
        let problem = put(&app, "/api/projects/shop/agents/other", "text/markdown", &[], invalid).await;
        let problem = problem.problem(422, "invalid_definition");
        assert_eq!(
            problem["errors"].as_array().unwrap().len(),
            errors.len() + 1,
            "{problem}"
        );
        let invalid = "---\nname: seller\ndescription: d\nsub_agents: [stranger]\n---\n\nSell.\n";
        let problem = put(&app, PATH, "text/markdown", &[], invalid)
            .await
            .problem(422, "invalid_definition");
        assert_eq!(problem["errors"][0]["pointer"], "/sub_agents/0", "{problem}");
        assert!(
            problem["errors"][0]["detail"].as_str().unwrap().contains("stranger"),
            "{problem}"
        );
        let problem = put(&app, "/api/projects/shop/agents/other", "text/markdown", &[], SELLER).await;
        let problem = problem.problem(422, "invalid_definition");
        let misnamed = json!([{"pointer": "/name", "detail": "found \"seller\"; allowed: \"other\", as in the path"}]);
        assert_eq!(problem["errors"], misnamed, "{problem}");
        get(&app, PATH).await.problem(404, "not_found");
        let long = format!("{SELLER}{}", "x".repeat(1 << 20));
        put(&app, PATH, "text/markdown", &[], long)
            .await
            .problem(413, "body_too_large");
    }
}

/// D-R4: whatever a body of 1 MiB has in errors, the answer is fast and short. Errors beyond the limit are
/// counted.
#[tokio::test]
async fn a_body_full_of_errors_is_answered_fast_and_briefly() {
    let [setup, _] = both();
    let app = spawn_app(setup).await;
    let name = |n: usize| format!("i{n:03}{}", "x".repeat(58));
    let inputs = |most: usize| {
        (0..most)
            .map(|n| format!("    {}: {{description: d, type: string}}\n", name(n)))
            .collect::<String>()
    };
    let many = |kind: &str, of: &dyn Fn(usize) -> String| (0..5000).map(of).collect::<Vec<_>>().join(kind);
    let named = (0..512).map(|n| format!("${{{}}}", name(n))).collect::<String>();
    let agent = |prompt: &str| {
        let inputs = inputs(512);
        format!(
            "---\nname: seller\ndescription: d\ninputConfig:\n  inputs:\n{inputs}query: \"{named}\"\n---\n\nGo.\n{prompt}"
        )
    };
    let reported = |problem: Value| {
        let bytes = problem.to_string().len();
        assert!(bytes <= 64 << 10, "{bytes} bytes");
        let errors = problem["errors"].as_array().unwrap();
        assert!(errors.len() > 20, "{problem}");
        assert!(
            errors.last().unwrap()["detail"].as_str().unwrap().contains(" more "),
            "{problem}"
        );
    };
    put(&app, PATH, "text/markdown", &[], agent("")).await.expect(201);
    let unknown: serde_json::Map<_, _> = (0..5000).map(|n| (format!("k{n}"), json!(1))).collect();
    let trigger = format!("{PATH}/trigger");
    let unknown = Value::Object(unknown);
    let begun = std::time::Instant::now();
    reported(
        app.trigger_with(&trigger, &[], &unknown)
            .await
            .problem(400, "invalid_request"),
    );
    for invalid in [
        // Placeholders that name no inputs, each one separate; one of 500 KiB of lines; fields; a field of an input
        // under a long name.
        agent(&many("\n", &|n| format!("${{p{n}}}"))),
        agent(&many(" ", &|n| format!("${{i{n:05}{}}}", "x".repeat(20)))),
        format!("---\n{}\n---\nGo.\n", many("\n", &|n| format!("colour{n}: red"))),
        format!(
            "---\nname: seller\ndescription: d\ninputConfig:\n  inputs:\n    {}: {{{}}}\n---\nGo.\n",
            "y".repeat(1000),
            many(", ", &|n| format!("f{n}: 1"))
        ),
        format!(
            "---\nname: seller\ndescription: d\nflow_type: sequential\nsteps:\n  - {{agent: seller, input: {{query: \"{}\"}}}}\n---\n",
            many(" ", &|n| format!("${{p{n}}}"))
        ),
    ] {
        reported(
            put(&app, PATH, "text/markdown", &[], invalid)
                .await
                .problem(422, "invalid_definition"),
        );
    }
    // Without the limit, one of them alone took longer on a fast processor.
    assert!(begun.elapsed().as_secs() < 100, "{:?}", begun.elapsed());
}

/// Descriptions of agents may be long, but a page of agents is not.
#[tokio::test]
async fn a_page_of_agents_with_long_descriptions_ends_early() {
    let [setup, _] = both();
    let app = spawn_app(setup).await;
    let words = "x".repeat(600 << 10);
    for name in ["a", "b", "c"] {
        let text = format!("---\nname: {name}\ndescription: {words}\n---\n\nGo.\n");
        put(
            &app,
            &format!("/api/projects/shop/agents/{name}"),
            "text/markdown",
            &[],
            text,
        )
        .await
        .expect(201);
    }
    let page = get(&app, "/api/projects/shop/agents").await.expect(200);
    assert_eq!(page["agents"].as_array().unwrap().len(), 2);
    let token = page["next_page_token"].as_str().unwrap();
    let page = get(&app, &format!("/api/projects/shop/agents?page_token={token}"))
        .await
        .expect(200);
    assert_eq!(
        (&page["agents"][0]["id"], &page["next_page_token"]),
        (&json!("c"), &Value::Null)
    );
}

/// RFC 9110: a number has one spelling, no key occurs twice, and an unacceptable format is not returned.
#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let [setup, _] = both();
    let app = spawn_app(setup).await;
    put_seller(&app, "Sell it.", &[]).await.expect(201);
    for invalid in ["\"+1\"", "\"01\"", "\"0\""] {
        put_seller(&app, "Sell.", &[("if-match", invalid)])
            .await
            .problem(400, "invalid_request");
    }
    for invalid in ["+1", "01"] {
        get(&app, &format!("{PATH}/versions/{invalid}"))
            .await
            .problem(404, "not_found");
    }
    let twice = app.request(
        "POST",
        &format!("{PATH}/trigger"),
        &[("content-type", "application/json")],
    );
    let problem = Answer::of(twice.body(r#"{"query": "x", "query": "y"}"#))
        .await
        .problem(400, "invalid_request");
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("the key \"query\" a second time, line 1"), "{problem}");
    let trigger = app
        .trigger_with(&format!("{PATH}/trigger?timeout_s=%2B5"), &[], &json!({"query": "x"}))
        .await;
    trigger.problem(400, "invalid_request");
    let trigger = app
        .trigger_with(
            &format!("{PATH}/trigger"),
            &[("prefer", "wait=+1")],
            &json!({"query": "x"}),
        )
        .await;
    trigger.problem(400, "invalid_request");
    let accept = [("accept", "application/yaml;q=0, application/json")];
    let answer = app.request("GET", PATH, &accept).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/json");
}

/// A project stays consistent, even if two agents that form a cycle are put at once.
#[tokio::test]
async fn of_two_concurrent_puts_that_form_a_cycle_one_is_refused() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let path = |name: &str| format!("/api/projects/shop/agents/{name}");
        let text =
            |name: &str, calls: &str| format!("---\nname: {name}\ndescription: d\nsub_agents: [{calls}]\n---\n\nGo.\n");
        for round in 0..5 {
            let (a, b) = (format!("a{round}"), format!("b{round}"));
            for name in [&a, &b] {
                put(&app, &path(name), "text/markdown", &[], text(name, ""))
                    .await
                    .expect(201);
            }
            let (path_a, path_b) = (path(&a), path(&b));
            let (one, other) = tokio::join!(
                put(&app, &path_a, "text/markdown", &[], text(&a, &b)),
                put(&app, &path_b, "text/markdown", &[], text(&b, &a)),
            );
            let mut statuses = [one.status, other.status];
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 422]);
        }
    }
}

/// A project stays consistent: a definition that would break another agent is rejected.
#[tokio::test]
async fn a_definition_that_would_break_another_agent_is_refused() {
    for setup in both() {
        let app = spawn_app(setup).await;
        put_seller(&app, "Sell it.", &[]).await.expect(201);
        let shop = "---\nname: shop\ndescription: d\nflow_type: sequential\nsteps:\n  - {agent: seller, input: {query: \"${query}\"}}\n---\n";
        put(&app, "/api/projects/shop/agents/shop", "text/markdown", &[], shop)
            .await
            .expect(201);
        // The step passes `query`, which the seller would no longer accept.
        let other = "---\nname: seller\ndescription: d\ninputConfig:\n  inputs:\n    price: {description: d, type: number, required: true}\n\
                     query: \"${price}\"\n---\n\nSell.\n";
        let problem = put(&app, PATH, "text/markdown", &[], other)
            .await
            .problem(422, "invalid_definition");
        assert!(problem.to_string().contains("shop (version 1)"), "{problem}");
        assert_eq!(get(&app, PATH).await.expect(200)["version"], 1);
        // A cycle: the definition that closes it is rejected.
        let cycle = "---\nname: seller\ndescription: d\nsub_agents: [shop]\n---\n\nSell.\n";
        put(&app, PATH, "text/markdown", &[], cycle)
            .await
            .problem(422, "invalid_definition");
    }
}

/// Agents from files belong to the project `default` and are read only. Agents put by the API may exist beside them.
#[tokio::test]
async fn an_agent_from_a_file_is_read_only() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let path = "/api/projects/default/agents/helper";
        let helper = get(&app, path).await;
        assert_eq!(helper.header("etag"), "", "it has no versions");
        let helper = helper.expect(200);
        assert_eq!(
            (&helper["source"], &helper["version"]),
            (&json!("file"), &Value::Null),
            "{helper}"
        );
        put(&app, path, "text/markdown", &[], HELPER)
            .await
            .problem(409, "read_only");
        get(&app, &format!("{path}/versions")).await.problem(404, "not_found");
        let beside = "---\nname: seller\ndescription: d\nsub_agents: [helper]\n---\n\nSell.\n";
        put(
            &app,
            "/api/projects/default/agents/seller",
            "text/markdown",
            &[],
            beside,
        )
        .await
        .expect(201);
        let run = app.triggered("seller", "x").await;
        assert_eq!(run["definition_version"], 1, "{run}");
        let page = get(&app, "/api/projects/default/agents").await.expect(200);
        let sources: Vec<_> = page["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["source"].clone())
            .collect();
        assert_eq!(sources, ["file", "file", "api"]);
        // Page by page it is the same list, without the definitions.
        let (mut token, mut names) = (String::new(), Vec::new());
        loop {
            let path = format!("/api/projects/default/agents?page_size=2&page_token={token}");
            let page = get(&app, &path).await.expect(200);
            let agents = page["agents"].as_array().unwrap();
            assert!(
                agents.len() <= 2 && agents.iter().all(|agent| agent["definition"].is_null()),
                "{page}"
            );
            names.extend(agents.iter().map(|agent| agent["id"].clone()));
            match page["next_page_token"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(names, ["chief", "helper", "seller"]);
        for invalid in ["x", "c2hvcC9zZWxsZXI"] {
            let path = format!("/api/projects/default/agents?page_token={invalid}");
            get(&app, &path).await.problem(400, "invalid_request");
        }
        // Another project has none of the agents from files.
        put_seller(&app, "Sell it.", &[]).await.expect(201);
        let page = get(&app, "/api/projects/shop/agents").await.expect(200);
        assert_eq!(page["agents"].as_array().unwrap().len(), 1, "{page}");
    }
}

/// A run keeps the version and the hash it started with, while a new version is put.
#[tokio::test]
async fn a_run_keeps_the_version_it_began_with() {
    for setup in both() {
        let script = vec![
            Reply::After(
                std::time::Duration::from_secs(1),
                Box::new(Reply::call("no_such_tool", json!({}))),
            ),
            Reply::Text("Done."),
        ];
        let app = spawn_app(setup.script(script)).await;
        let first = put_seller(&app, "Sell one.", &[]).await.expect(201);
        let later = [("prefer", "respond-async")];
        let answer = app
            .trigger_with(&format!("{PATH}/trigger"), &later, &json!({"query": "x"}))
            .await;
        let run = id(&answer.expect(202));
        app.asked(1).await;
        let second = put_seller(&app, "Sell two.", &[]).await.expect(200);
        assert_ne!(first["definition_hash"], second["definition_hash"]);
        let over = app.over(&run).await;
        assert_eq!(
            (&over["status"], &over["definition_version"], &over["definition_hash"]),
            (&json!("completed"), &json!(1), &first["definition_hash"]),
            "{over}"
        );
        for asked in app.gemini.requests() {
            assert!(super::asks(&asked, "Sell one."), "{asked}");
        }
        let next = app
            .trigger_with(&format!("{PATH}/trigger"), &[], &json!({"query": "x"}))
            .await
            .expect(200);
        assert_eq!(next["definition_version"], 2, "{next}");
    }
}

/// Of many concurrent puts with the same `If-Match`, exactly one succeeds.
#[tokio::test]
async fn of_many_concurrent_puts_over_one_version_exactly_one_succeeds() {
    for setup in both() {
        let app = spawn_app(setup).await;
        put_seller(&app, "Nought.", &[]).await.expect(201);
        let words: Vec<_> = (0..8).map(|n| format!("Word {n}.")).collect();
        let puts = words
            .iter()
            .map(|words| put_seller(&app, words, &[("if-match", "\"1\"")]));
        let mut statuses: Vec<_> = futures_util::future::join_all(puts)
            .await
            .iter()
            .map(|put| put.status)
            .collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    }
}

fn file(app: &App, name: &str) -> std::path::PathBuf {
    app.directory.path().join("agents").join(name)
}

async fn prompt(app: &App) -> Value {
    let (_, helper) = app.get("/api/projects/default/agents/helper").await;
    helper["definition"]["promptConfig"]["systemPrompt"].clone()
}

/// Changed files are reread. An invalid change leaves all agents unchanged.
#[tokio::test]
async fn files_are_reread_and_an_invalid_change_leaves_agents_unchanged() {
    let app = spawn_app(Setup::stdio_sqlite().agent("helper.md", HELPER)).await;
    std::fs::write(file(&app, "helper.md"), HELPER.replace("the helper", "another helper")).unwrap();
    until("the change to be read", || async {
        prompt(&app).await == "You are another helper."
    })
    .await;
    std::fs::write(file(&app, "new.md"), "---\nname: new\ndescription: d\n---\n\nNew.\n").unwrap();
    until("the new agent to exist", || async {
        app.get("/api/projects/default/agents/new").await.0 == 200
    })
    .await;
    // One file is invalid and another is valid: neither is applied. The next valid state is.
    std::fs::write(file(&app, "new.md"), "---\nname: new\ncolour: red\n---\n\nNew.\n").unwrap();
    std::fs::write(file(&app, "helper.md"), HELPER.replace("the helper", "a third helper")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(prompt(&app).await, "You are another helper.");
    assert_eq!(app.get("/api/projects/default/agents/new").await.0, 200);
    std::fs::remove_file(file(&app, "new.md")).unwrap();
    until("the rest to be read", || async {
        prompt(&app).await == "You are a third helper."
    })
    .await;
    assert_eq!(app.get("/api/projects/default/agents/new").await.0, 404);
    // A missing directory is not an empty one: the agents stay. An empty directory removes them.
    let directory = app.directory.path().join("agents");
    std::fs::rename(&directory, app.directory.path().join("away")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(prompt(&app).await, "You are a third helper.");
    std::fs::create_dir(&directory).unwrap();
    until("the empty directory to be read", || async {
        app.get("/api/projects/default/agents/helper").await.0 == 404
    })
    .await;
}

/// A changed file may break agents from the API. They are listed with the reason, do not run, block no other put, and
/// can be repaired one by one.
#[tokio::test]
async fn an_agent_broken_by_a_changed_file_reports_it_and_can_be_repaired() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let base = "/api/projects/default/agents";
        let of =
            |name: &str, calls: &str| format!("---\nname: {name}\ndescription: d\nsub_agents: [{calls}]\n---\n\nGo.\n");
        let put = async |name: &str, calls: &str| {
            put(&app, &format!("{base}/{name}"), "text/markdown", &[], of(name, calls)).await
        };
        put("one", "chief").await.expect(201);
        put("two", "chief").await.expect(201);
        put("boss", "one").await.expect(201);
        std::fs::remove_file(file(&app, "chief.md")).unwrap();
        until("the missing file to be noticed", || async {
            app.get(&format!("{base}/chief")).await.0 == 404
        })
        .await;
        let one = get(&app, &format!("{base}/one")).await.expect(200);
        assert!(one["unavailable_reason"].as_str().unwrap().contains("chief"), "{one}");
        let boss = get(&app, &format!("{base}/boss")).await.expect(200);
        assert!(
            boss["unavailable_reason"]
                .as_str()
                .unwrap()
                .contains("found one, invalid"),
            "{boss}"
        );
        let page = get(&app, base).await.expect(200);
        let names: Vec<_> = page["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["id"].clone())
            .collect();
        assert_eq!(names, ["boss", "helper", "one", "two"], "{page}");
        let refused = app
            .trigger_with(&super::path_of("one"), &[], &json!({"query": "x"}))
            .await;
        refused.problem(422, "invalid_definition");
        put("three", "helper").await.expect(201);
        // An agent that calls a broken one may be put. The answer says at once that it cannot run.
        let fourth = put("four", "two").await.expect(201);
        assert_eq!(fourth["available"], false, "{fourth}");
        put("one", "helper").await.expect(200);
        put("two", "helper").await.expect(200);
        assert_eq!(app.triggered("two", "x").await["status"], "completed");
    }
}

/// The schema for editor completion is served to every caller.
#[tokio::test]
async fn the_schema_of_a_definition_is_served() {
    let app = spawn_app(Setup::stdio_sqlite()).await;
    for name in ["agent", "agent-front-matter"] {
        let answer = Answer::of(app.request("GET", &format!("/schemas/{name}.schema.json"), &[])).await;
        assert_eq!(answer.header("content-type"), "application/schema+json");
        assert!(answer.expect(200)["properties"]["name"].is_object());
    }
    get(&app, "/schemas/other.json").await.problem(404, "not_found");
}
