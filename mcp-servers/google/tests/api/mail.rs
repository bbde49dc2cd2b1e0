use std::time::Duration;

use mail_parser::MimeHeaders;
use serde_json::{Value, json};

use crate::google::Trouble;
use crate::harness::account;

fn email() -> Value {
    json!({ "to": ["ben@example.com"], "subject": "Late", "body": "I am late." })
}

on_both! {
    ///
    async fn an_e_mail_arrives_as_it_was_written_in_every_script(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let subject = "Grüße → 你好, שלום 👩‍🚀 ".repeat(12);
        let body = "Liebe Ann,\n\nich komme später – 10 € Strafe.\n.\nFrom here on\r\nEnde\n".to_owned() + &"ü".repeat(3000);
        let answer = server
            .call(
                "anna",
                "gmail_send",
                json!({
                    "to": ["\"Müller, Ann\" <ann@example.com>", "李 <li@例え.jp>", "ben@example.com"],
                    "cc": ["Çem <cem@example.com>"],
                    "subject": subject, "body": body, "html_body": "<p>später 👩‍🚀</p>"
                }),
            )
            .await
            .ok();
        let sent = world.google.sent(&account("anna"));
        let [mail] = &sent[..] else { panic!("{sent:?}") };
        let message = mail.message();
        assert_eq!(message.subject(), Some(subject.trim()));
        assert_eq!(message.body_text(0).expect("a text").replace("\r\n", "\n"), body.replace("\r\n", "\n"));
        assert_eq!(message.body_html(0).expect("HTML"), "<p>später 👩‍🚀</p>");
        let named: Vec<_> = message
            .to()
            .expect("To")
            .iter()
            .map(|one| (one.name().map(str::to_owned), one.address().expect("an address").to_owned()))
            .collect();
        assert_eq!(
            named,
            [
                (Some("Müller, Ann".to_owned()), "ann@example.com".to_owned()),
                (Some("李".to_owned()), "li@xn--r8jz45g.jp".to_owned()),
                (None, "ben@example.com".to_owned())
            ]
        );
        let cc = message.cc().and_then(|list| list.first()).expect("Cc");
        assert_eq!((cc.name(), cc.address()), (Some("Çem"), Some("cem@example.com")));
        assert!(mail.raw.is_ascii(), "headers and bodies are encoded");
        assert_eq!(answer["message"]["id"], mail.id);
        assert_eq!(answer["message"]["thread_id"], mail.thread_id);
        assert_eq!(answer["message"]["to"][1], "李 <li@xn--r8jz45g.jp>");
        assert_eq!(answer["recovered"], false);
    }

    /// text files are attached, byte for byte, under their names.
    async fn files_of_text_go_out_with_an_e_mail(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let csv = "day,Grüße\r\n1,\"a\nb\"\n".to_owned() + &"x".repeat(2000);
        let mut arguments = email();
        arguments["html_body"] = "<p>Late.</p>".into();
        arguments["attachments"] = json!([
            { "filename": "Zahlen für Änn.CSV", "text": csv }, { "filename": "notes.txt", "text": "" }
        ]);
        let answer = server.call("anna", "gmail_send", arguments).await.ok();
        assert_eq!(answer["message"]["attachments"], json!(["Zahlen für Änn.CSV", "notes.txt"]));
        let sent = world.google.sent(&account("anna"));
        let message = sent[0].message();
        assert_eq!(message.body_text(0).expect("a text").trim_end(), "I am late.");
        assert_eq!(message.body_html(0).expect("HTML"), "<p>Late.</p>");
        let files: Vec<_> = message.attachments().collect();
        let reported = |n: usize| {
            let kind = files[n].content_type().expect("a type");
            let kind = (kind.ctype(), kind.subtype().expect("a subtype"), kind.attribute("charset"));
            (files[n].attachment_name().expect("a name"), kind, files[n].contents())
        };
        assert_eq!(files.len(), 2);
        assert_eq!(reported(0), ("Zahlen für Änn.CSV", ("text", "csv", Some("utf-8")), csv.as_bytes()));
        assert_eq!(reported(1), ("notes.txt", ("text", "plain", Some("utf-8")), &b""[..]));
        assert!(sent[0].raw.is_ascii());
    }

    /// a file that is not text, or whose name is a path, is not sent.
    async fn an_unreadable_file_is_not_sent(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        for (invalid, code, place) in [
            (json!([{ "filename": "run.exe", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "page.html", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "../a.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": ".txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a\u{202e}vsc.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": format!("Rechnung.pdf{}.txt", "\u{3164}".repeat(13)), "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a\u{115f}.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a\u{1160}.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a\u{ffa0}.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a\u{34f}.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a\u{13441}.txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "Rechnung.pdf             .txt", "text": "x" }]), "invalid_argument", "attachments/0/filename"),
            (json!([{ "filename": "a.txt", "text": "x" }, { "filename": "b.txt" }]), "missing_argument", "attachments/1/text"),
            (json!([{ "filename": "a.txt", "text": "x", "url": "y" }]), "unknown_argument", "attachments/0/url"),
            (json!(["a.txt"]), "invalid_argument", "attachments/0"),
        ] {
            let mut arguments = email();
            arguments["attachments"] = invalid.clone();
            let reply = server.call("anna", "gmail_send", arguments).await;
            let error = reply.error();
            assert_eq!((&error["code"], &error["argument"]), (&json!(code), &json!(place)), "{invalid}: {error}");
        }
        assert!(world.google.sent(&account("anna")).is_empty());
    }

    /// Gmail reads Bcc from the message, and removes it from the recipients' copies.
    async fn a_blind_copy_is_delivered_and_no_other_recipient_sees_it(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let mut arguments = email();
        arguments["bcc"] = json!(["Boss <boss@example.com>"]);
        server.call("anna", "gmail_send", arguments).await.ok();
        let mail = &world.google.sent(&account("anna"))[0];
        assert_eq!(mail.delivered_to, ["ben@example.com", "boss@example.com"]);
        let delivered = String::from_utf8(mail.delivered.clone()).expect("text");
        assert!(delivered.contains("ben@example.com") && !delivered.contains("boss"), "{delivered}");
    }

    ///
    async fn a_reply_goes_into_the_thread_and_names_its_ancestors(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let original = "From: ben@example.com\nTo: anna@gmail.example\nSubject: Plans\nMessage-ID: <two@example.com>\n\
                        References: <zero@example.com> <one@example.com>\n\nCome?\n";
        let (id, thread) = world.google.put_mail(&account("anna"), original, "INBOX", Duration::from_secs(60));
        let reply = |more: Value| {
            let mut arguments = json!({ "to": ["ben@example.com"], "subject": "Re: Plans", "body": "Yes." });
            arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            arguments
        };
        let by_message = reply(json!({ "reply_to_message_id": id }));
        let by_thread = reply(json!({ "thread_id": thread }));
        let both = reply(json!({ "reply_to_message_id": id, "thread_id": thread }));
        for arguments in [by_message, by_thread.clone(), both] {
            let answer = server.call("anna", "gmail_send", arguments).await.ok();
            assert_eq!(answer["message"]["thread_id"], thread);
            assert_eq!(answer["message"]["subject"], "Re: Plans");
        }
        let sent = world.google.sent(&account("anna"));
        let ids = |mail: &crate::google::Mail, name: &'static str| {
            let message = mail.message();
            match message.header(name).cloned() {
                Some(mail_parser::HeaderValue::Text(text)) => vec![text.into_owned()],
                Some(mail_parser::HeaderValue::TextList(list)) => list.into_iter().map(|id| id.into_owned()).collect(),
                other => panic!("{name}: {other:?}"),
            }
        };
        for mail in [&sent[0], &sent[2]] {
            assert_eq!(mail.message().subject(), Some("Re: Plans"));
            assert_eq!(ids(mail, "In-Reply-To"), ["two@example.com"]);
            assert_eq!(ids(mail, "References"), ["zero@example.com", "one@example.com", "two@example.com"]);
            assert_eq!(mail.thread_id, thread);
        }
        // The second replied to the first, the last message of the thread by then.
        assert_eq!(ids(&sent[1], "In-Reply-To"), [sent[0].message_id.clone()]);

        let elsewhere = reply(json!({ "reply_to_message_id": id, "thread_id": "t000099" }));
        assert_eq!(server.call("anna", "gmail_send", elsewhere).await.code(), "invalid_argument");
        let nowhere = reply(json!({ "reply_to_message_id": "m000099" }));
        assert_eq!(server.call("anna", "gmail_send", nowhere).await.code(), "not_found");
        // The approver sees what is sent: nothing comes from the original unseen.
        let unreported = json!({ "to": ["ben@example.com"], "body": "Yes.", "reply_to_message_id": id });
        assert_eq!(server.call("anna", "gmail_send", unreported).await.code(), "missing_argument");
        assert_eq!(world.google.sent(&account("anna")).len(), 3);
    }

    /// Promise: exact approvals. Google begins a new thread for a reply with another subject. The error comes
    /// before approval is requested.
    async fn a_reply_with_another_subject_is_refused_and_both_are_named(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let original = "From: ben@example.com\nSubject: Re: Plans\nMessage-ID: <two@example.com>\n\nCome?\n";
        let (id, thread) = world.google.put_mail(&account("anna"), original, "INBOX", Duration::from_secs(60));
        for more in [json!({ "thread_id": thread }), json!({ "reply_to_message_id": id })] {
            let mut arguments = email();
            arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            let look = json!({ "for": "gmail_send", "arguments": arguments });
            let looked = server.call("anna", "google_account", look).await;
            assert_eq!((looked.code(), &looked.error()["class"]), ("invalid_argument", &json!("arguments")));
            let refused = server.call("anna", "gmail_send", arguments).await;
            assert_eq!((refused.code(), &refused.error()["argument"]), ("invalid_argument", &json!("subject")));
            assert_eq!(refused.error()["subject_of_thread"], "Re: Plans");
            let words = refused.error()["message"].to_string();
            assert!(words.contains("\\\"Late\\\"") && words.contains("\\\"Re: Plans\\\""), "{words}");
        }
        assert!(world.google.sent(&account("anna")).is_empty());
        let arguments = json!({ "to": ["ben@example.com"], "subject": "PLANS", "body": "Yes.", "thread_id": thread });
        let answer = server.call("anna", "gmail_send", arguments).await.ok();
        assert_eq!(answer["message"]["thread_id"], thread);
    }

    /// content of another person's e-mail becomes no header of ours.
    async fn a_poisoned_original_puts_nothing_into_a_reply(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let poisoned = "From: eve@example.com\nSubject: =?utf-8?B?SGkNCkJjYzogZXZlQGV4YW1wbGUub3Jn?=\n\
                        Message-ID: <a@b>\nReferences: =?utf-8?Q?<x@y>=0D=0ABcc:_eve@example.org?=\n\nHi\n";
        let (id, _) = world.google.put_mail(&account("anna"), poisoned, "INBOX", Duration::from_secs(60));
        let mut arguments = json!({ "to": ["ben@example.com"], "subject": "Re: Hi", "body": "x", "reply_to_message_id": id });
        let refused = server.call("anna", "gmail_send", arguments.clone()).await;
        let named = refused.error()["subject_of_thread"].as_str().expect("a subject").to_owned();
        assert!(named.starts_with("Hi") && !named.contains(char::is_control), "{named:?}");
        let of_thread = poisoned.replace("=?utf-8?B?SGkNCkJjYzogZXZlQGV4YW1wbGUub3Jn?=", "Hi");
        let (id, _) = world.google.put_mail(&account("anna"), &of_thread, "INBOX", Duration::from_secs(60));
        arguments["reply_to_message_id"] = id.into();
        server.call("anna", "gmail_send", arguments).await.ok();
        let mail = &world.google.sent(&account("anna"))[0];
        assert_eq!(mail.delivered_to, ["ben@example.com"]);
        assert!(mail.message().bcc().is_none());
        assert_eq!(mail.message().subject(), Some("Re: Hi"));
    }

    /// Promise: exact approvals. Recipients read the approved subject, even if it looks like an encoded word.
    async fn a_subject_is_read_as_it_was_given(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let subjects = [
            "=?utf-8?B?V2lyZSA5MDAwMCB0byBERTAwIHRvZGF5?=".to_owned(),
            format!("What is =? {} ünd =?utf-8?Q?x?= so on", "word ".repeat(40)),
            format!("=?{}", "ä".repeat(200)),
        ];
        for (n, subject) in subjects.iter().enumerate() {
            let mut arguments = email();
            arguments["subject"] = subject.as_str().into();
            server.call("anna", "gmail_send", arguments).await.ok();
            let mail = &world.google.sent(&account("anna"))[n];
            assert_eq!(mail.message().subject(), Some(subject.as_str()));
            let delivered = String::from_utf8(mail.delivered.clone()).expect("text");
            assert!(delivered.lines().all(|line| line.len() <= 78), "{delivered}");
        }
    }

    /// defense in depth; the host's gate rejects the same before it requests approval.
    async fn what_could_begin_a_header_or_is_no_address_is_refused_and_nothing_is_sent(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let many: Vec<_> = (0..51).map(|number| format!("u{number}@example.com")).collect();
        let cases = [
            (json!({ "to": ["ben@example.com\r\nBcc: eve@example.org"] }), "invalid_recipient", "to/0"),
            (json!({ "cc": ["ok@example.com", "Ben\nBcc: eve@example.org <ben@example.com>"] }), "invalid_recipient", "cc/1"),
            (json!({ "bcc": ["boss@example.com <eve@example.org>"] }), "invalid_recipient", "bcc/0"),
            (json!({ "to": ["=?utf-8?Q?boss=40x.com?= <eve@example.org>"] }), "invalid_recipient", "to/0"),
            (json!({ "to": ["Ann \u{2800}\u{fe0f}\u{34f} <eve@example.org>"] }), "invalid_recipient", "to/0"),
            (json!({ "to": [""] }), "invalid_recipient", "to/0"),
            (json!({ "to": [7] }), "invalid_argument", "to/0"),
            (json!({ "to": "ben@example.com" }), "invalid_argument", "to"),
            (json!({ "to": [] }), "missing_argument", "to"),
            (json!({ "to": Value::Null }), "missing_argument", "to"),
            (json!({ "to": many }), "too_many_recipients", "to"),
            (json!({ "subject": "Late\r\nBcc: eve@example.org" }), "unsafe_text", "subject"),
            (json!({ "subject": "Late\u{7f}" }), "unsafe_text", "subject"),
            (json!({ "subject": " \u{200b} " }), "invalid_argument", "subject"),
            (json!({ "subject": "x".repeat(901) }), "too_long", "subject"),
            (json!({ "body": Value::Null }), "missing_argument", "body"),
            (json!({ "body": "" }), "invalid_argument", "body"),
            (json!({ "body": " \n\u{200b}\u{3164}\t" }), "invalid_argument", "body"),
            (json!({ "body": "", "html_body": " ", "attachments": [] }), "invalid_argument", "body"),
            (json!({ "body": "a\0b" }), "nul_character", "body"),
            (json!({ "reply_to_message_id": "../drafts" }), "invalid_argument", "reply_to_message_id"),
            (json!({ "user_id": "ben" }), "unknown_argument", "user_id"),
            (json!({ "from": "ben@example.com" }), "unknown_argument", "from"),
        ];
        for (change, code, argument) in cases {
            let mut arguments = email();
            arguments.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
            let reply = server.call("anna", "gmail_send", arguments).await;
            assert_eq!(reply.code(), code, "{change}");
            assert_eq!(reply.error()["argument"], argument, "{change}");
        }
        // Also in total.
        let half = |from: usize| (from..from + 20).map(|number| format!("u{number}@example.com")).collect::<Vec<_>>();
        let together = json!({ "to": half(0), "cc": half(20), "bcc": half(40), "subject": "x", "body": "x" });
        assert_eq!(server.call("anna", "gmail_send", together).await.code(), "too_many_recipients");
        assert!(world.google.sent(&account("anna")).is_empty());
        assert!(world.google.seen("send").is_empty());
    }

    ///
    async fn an_e_mail_says_something_in_its_text_its_html_or_a_file(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let file = json!([{ "filename": "numbers.csv", "text": "1,2" }]);
        for more in [json!({ "html_body": "<p>Late.</p>" }), json!({ "attachments": file })] {
            let mut arguments = json!({ "to": ["ben@example.com"], "subject": "Late", "body": "" });
            arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            server.call("anna", "gmail_send", arguments).await.ok();
        }
        assert_eq!(world.google.sent(&account("anna")).len(), 2);
    }

    ///
    async fn an_e_mail_that_is_too_long_is_refused_before_it_is_sent(world: World) {
        let mut world = world;
        world.environment.insert("GOOGLE_MAX_MESSAGE_BYTES", "2000".to_owned());
        world.connect("anna").await;
        let server = world.server().await;
        let mut arguments = email();
        arguments["body"] = json!("x".repeat(2000));
        let reply = server.with_key("k", "anna", "gmail_send", arguments).await;
        assert_eq!(reply.code(), "too_long");
        assert_eq!(reply.error()["max"], 2000);
        assert!(world.google.seen("send").is_empty());
        // A rejected call does not use up the key.
        server.with_key("k", "anna", "gmail_send", email()).await.ok();
    }

    /// a token belongs to the user that `_meta` names, whatever else is connected.
    async fn each_user_sends_from_the_own_account_alone(world: World) {
        for user in ["anna", "ben"] {
            world.connect(user).await;
        }
        let server = world.server().await;
        let calls = (0..12).map(|number| {
            let user = ["anna", "ben"][number % 2];
            let arguments = json!({ "to": ["x@example.com"], "subject": user, "body": "x" });
            let server = &server;
            async move { server.call(user, "gmail_send", arguments).await.ok() }
        });
        for call in calls.collect::<Vec<_>>() {
            call.await;
        }
        for user in ["anna", "ben"] {
            let sent = world.google.sent(&account(user));
            assert_eq!(sent.len(), 6);
            assert!(sent.iter().all(|mail| mail.message().subject() == Some(user)));
        }
        assert_eq!(server.call("eve", "gmail_send", email()).await.code(), "not_connected");
        let stranger = server.try_call("gmail_send", email(), json!({})).await.expect("an answer");
        assert_eq!(stranger.code(), "user_required");
        let odd = server.try_call("gmail_send", email(), json!({ "gavel/user_id": ["anna"] })).await.expect("an answer");
        assert_eq!(odd.code(), "invalid_identity");
        // One key of two users is two keys.
        for user in ["anna", "ben"] {
            server.with_key("same", user, "gmail_send", email()).await.ok();
        }
        assert_eq!(world.google.sent(&account("ben")).len(), 7);
    }

    /// Promise: at most once.
    async fn a_repeated_call_sends_nothing_and_gets_the_first_answer(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let first = server.with_key("k", "anna", "gmail_send", email()).await;
        assert!(!first.is_error);
        assert_eq!(server.with_key("k", "anna", "gmail_send", email()).await, first);
        let other = json!({ "to": ["eve@example.org"], "subject": "Late", "body": "I am late." });
        assert_eq!(server.with_key("k", "anna", "gmail_send", other).await.code(), "idempotency_key_reused");
        let again = world.server().await;
        assert_eq!(again.with_key("k", "anna", "gmail_send", email()).await, first);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// Promise: at most once. Two processes, as replicas are.
    async fn ten_calls_at_once_with_one_key_send_one_e_mail(world: World) {
        world.connect("anna").await;
        let servers = [world.server().await, world.server().await];
        world.google.trouble("send", [Trouble::Late(Duration::from_millis(300))]);
        let calls = (0..10).map(|number| servers[number % 2].try_with_key("k", "anna", "gmail_send", email()));
        let answers = join_all(calls).await;
        let good = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|reply| !reply.is_error)).count();
        assert!(good >= 1, "{answers:?}");
        // Calls that could not know the outcome said so; none reported that nothing was done.
        assert!(answers.iter().all(|answer| answer.as_ref().is_err() || !answer.as_ref().expect("ok").is_error));
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }
}

async fn join_all<F: Future + Send>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.map(Box::pin).collect();
    let mut out: Vec<Option<F::Output>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (future, out) in all.iter_mut().zip(&mut out) {
            if out.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *out = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    out.into_iter().flatten().collect()
}
