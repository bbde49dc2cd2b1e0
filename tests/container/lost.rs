//! What a session sees of a container that vanishes, and of one whose disk is full.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cut::under_way;
use crate::engine::{Engine, SMALL_IMAGE};
use crate::gemini::Reply;
use crate::model::{Step, Task, call, model, results, script};
use crate::service::{World, started};
use crate::whole::FILES;

fn create() -> Step {
    call("createContainer", json!({"options": {"image": SMALL_IMAGE}}))
}

fn tasks() -> Vec<Task> {
    let fill =
        "dd if=/dev/zero of=big bs=64k count=1000; dd if=/dev/zero of=rest bs=1 count=10000; echo filled; exit 7";
    vec![
        Task {
            title: "Run a script although containers vanish",
            tools: &["createContainer", "executeScript"],
            steps: vec![
                create(),
                script("echo here"),
                script("echo gone"),
                create(),
                script("echo 1 >/work/counter; sleep 600"),
                create(),
                script("cat /etc/os-release"),
            ],
            quote: "https://www.debian.org/",
        },
        Task {
            title: "Run a script although the disk is full",
            tools: &["listContainers", "executeScript"],
            steps: vec![
                call("listContainers", json!({})),
                script(fill),
                script("echo more"),
                script("cat /etc/os-release"),
            ],
            quote: "https://www.debian.org/",
        },
    ]
}

/// The model of the session. Between two steps of the first task the container is removed; in the second one the disk is
/// cleared once a script is refused for it.
fn removing(engine: &'static Engine) -> Reply {
    let answers = model(tasks());
    Reply::from(move |request| {
        if let [created, ran] = results(request).as_slice()
            && ran["stdout"] == "here\n"
        {
            let container = created["id"].as_str().unwrap();
            engine.podman(["rm", "--force", "--ignore", "--time", "0", container]);
        }
        if let [listed, _, refused] = results(request).as_slice()
            && refused.to_string().contains("disk_full")
        {
            let container = listed["containers"][0]["id"].as_str().unwrap();
            engine.podman(["exec", container, "rm", "--force", "big"]);
        }
        answers.clone()
    })
}

/// The results that the model has seen at the end of a task.
fn seen(world: &World, task: &str) -> Vec<Value> {
    let requests = world.gemini.requests();
    let is_of = |request: &&Value| {
        request["contents"]
            .to_string()
            .contains(&format!("Your task is {task} "))
    };
    results(requests.iter().rfind(is_of).unwrap())
}

fn is_error(result: &Value, code: &str) -> bool {
    !result["error"].is_null() && result.to_string().contains(&format!("\\\"{code}\\\""))
}

/// A lost container and a full disk are observations, and the session continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_after_a_lost_container_and_after_a_full_disk() {
    let Some(engine) = started().await else { return };
    let mut world = World::new(engine, None, &FILES, |_| removing(engine)).await;
    world.further = vec![
        ("DOCKER_IMAGES", SMALL_IMAGE.to_owned()),
        ("DOCKER_MOUNTS", engine.small_disk()),
    ];
    let gavel = world.start().await;
    let session = world.plan(&gavel, Duration::from_secs(3600)).await;
    world.execute(&gavel, &session).await;
    // The first container is gone by then.
    let is_second = |task: &Value| task["reactHistory"].as_array().is_some_and(|steps| steps.len() > 4);
    let task = format!("{session}/tasks/t1");
    world.once(&gavel, &task, "the fifth step begins", is_second).await;
    let container = under_way(&world, &session).await;
    engine.podman(["rm", "--force", "--time", "0", &container]);
    let ended = world.ended(&gavel, &session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");

    let [lost, full] = ["t1", "t2"].map(|task| seen(&world, task));
    let not_found: Vec<_> = lost.iter().map(|result| is_error(result, "not_found")).collect();
    assert_eq!(not_found, [false, false, true, false, true, false, false], "{lost:?}");
    let words = full[1]["stderr"].as_str().unwrap();
    assert!(words.contains("No space left on device"), "{full:?}");
    assert_eq!(
        (&full[1]["stdout"], &full[1]["exitCode"]),
        (&json!("filled\n"), &json!(7)),
        "the result is whole"
    );
    assert!(is_error(&full[2], "disk_full"), "{full:?}");
    for (task, seen) in [("t1", lost), ("t2", full)] {
        let observations = world.observations(&gavel, &session, task).await;
        assert_eq!(observations.len(), seen.len(), "no step is lost: {observations:?}");
    }
    assert_eq!(world.containers(&session), [""; 0]);
    gavel.stop();
    world.verify_audit();
}
