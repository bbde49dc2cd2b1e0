//! The same user name in two tenants means two users, each with their own account.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, BOTH, Desk, account, mail, puppet, puppets, states};

const KEYS: [(&str, &str); 2] = [("key-of-us", "default"), ("key-of-acme", "acme")];

fn keys() -> String {
    let entries = KEYS.map(|(key, tenant)| {
        let hash: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[auth.keys]]\nname = \"{key}\"\nsha256 = \"{hash}\"\ntenant = \"{tenant}\"\n")
    });
    format!("[auth]\nmode = \"api_key\"\n{}", entries.concat())
}

/// Has this tenant's ann send an e-mail, and approves it if required; returns the run.
async fn anns_mail(desk: &Desk, key: &str) -> Value {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("x-gavel-user", "ann")];
    let post = |path: &str, body: Value| desk.app.request("POST", path, &headers).json(&body);
    let prompt = puppets(&json!([["gmail_send", mail()]]));
    let run = Answer::of(post("/api/agent/run", json!({"prompt": prompt})))
        .await
        .expect(200);
    if run["status"] != "awaiting_confirmation" {
        return run;
    }
    let yes = json!({"approvalId": run["actions"][0]["approvalId"], "decision": "approve_once"});
    Answer::of(post("/api/agent/approvals/resolve", yes)).await.expect(200)
}

/// Promise: decided by code. A user cannot send from the account of a namesake in another tenant.
#[tokio::test]
async fn a_user_cannot_send_from_the_account_of_a_namesake_in_another_tenant() {
    for kind in BOTH {
        let desk = Desk::with(kind, puppet(), |setup| setup.toml(&keys())).await;
        desk.connect("ann").await;
        let run = anns_mail(&desk, "key-of-acme").await;
        assert_eq!(states(&run), ["failed"], "{run}");
        let why = run["actions"][0]["errorMessage"].as_str().unwrap();
        assert!(why.contains("gavel google connect 'acme/ann'"), "{why}");
        desk.nothing_happened();

        desk.connect("acme/ann").await;
        for (key, _) in KEYS {
            assert_eq!(states(&anns_mail(&desk, key).await), ["completed"]);
        }
        for sender in ["ann", "acme/ann"] {
            assert_eq!(desk.google.sent(&account(sender)).len(), 1, "{sender}");
        }
        desk.app.stop().await;
    }
}
