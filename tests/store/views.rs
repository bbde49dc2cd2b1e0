//! The analysts' views, and the roles that may read them.

use gavel::adapters::store::{Analyst, ContentMode, Store, StoreConfig, StoreError};
use gavel::domain::ids::{InstanceId, TenantId};
use gavel::domain::time::Timestamp;

use crate::commits::Writes;
use crate::support::{TestDb, closed, done, intent, open_decision};

impl TestDb {
    /// A view by its name in this database.
    pub(crate) fn view(&self, name: &str) -> String {
        format!("gavel_v1{}{name}", if self.is_sqlite() { '_' } else { '.' })
    }
}

/// A decision of `acme` and one of another tenant, each with a call.
async fn decisions_of_two_tenants(db: &TestDb) {
    let store = db.open_with(ContentMode::Full).await;
    for tenant in ["acme", "zeta"] {
        let mut open = open_decision();
        open.tenant = TenantId::parse(tenant).unwrap();
        open.message = format!("a secret of {tenant}").into();
        let call = intent(&open, 1);
        store.close(closed(open, vec![done(&call)], false)).await.unwrap();
    }
    store.shutdown().await;
}

/// Times are those of the database where it has any, durations milliseconds, and each model call is a row.
pub(crate) async fn the_views_have_native_times_and_a_row_for_each_model_call(db: TestDb) {
    let store = db.open().await;
    let mut open = open_decision();
    // Every microsecond counts.
    for us in [0, 1, 499_999, 999_999] {
        open = open_decision();
        open.created_at = 1_795_132_800_000_000 + us;
        let calls = vec![done(&intent(&open, 1))];
        store.close(closed(open.clone(), calls, false)).await.unwrap();
    }
    let at = |column: &str| match db.is_sqlite() {
        true => column.to_owned(),
        false => format!("to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"),
    };
    let (decisions, turns) = (db.view("decisions"), db.view("model_turns"));
    let times = format!(
        "SELECT {}, created_us FROM {decisions} ORDER BY created_us",
        at("created_at")
    );
    for row in db.rows(&times).await {
        let us: i64 = row[1].as_ref().unwrap().parse().unwrap();
        assert_eq!(row[0].as_deref(), Some(&*Timestamp(us).to_string()));
    }
    let of = format!("WHERE decision_id = '{}'", open.id);
    assert_eq!(
        db.line(&format!(
            "SELECT duration_ms, outcome_category, user_id, input_tokens FROM {decisions} {of}"
        ))
        .await,
        "1234 SUCCESS:TASK_COMPLETED ann 11"
    );
    let calls = db.view("tool_invocations");
    assert_eq!(
        db.line(&format!(
            "SELECT duration_ms, tool, status FROM {calls} {of} AND success"
        ))
        .await,
        "1 add_task completed"
    );
    assert_eq!(
        db.rows(&format!(
            "SELECT number, requested_model, attempts, output_tokens, {} FROM {turns} {of} ORDER BY number",
            at("started_at")
        ))
        .await
        .into_iter()
        .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>(),
        [
            "1 gemini-test 1 0 2026-11-20T00:00:00.000001Z",
            "2 gemini-test 1 0 2026-11-20T00:00:00.000001Z"
        ]
    );
    // What a gateway calls a model must not make the view unreadable.
    db.run("UPDATE decision_log SET turns = replace(turns, 'gemini-test', 'a\\u0000b') WHERE created_at % 10 = 0")
        .await;
    assert!(
        db.count(&format!(
            "SELECT COUNT(*) FROM {turns} WHERE requested_model = 'gemini-test'"
        ))
        .await
            >= 4
    );
    store.shutdown().await;
}

/// A database with older views gets those of this version. What looked through them, and who could, stays.
pub(crate) async fn older_views_are_replaced_and_what_looks_through_them_stays(db: TestDb) {
    Store::migrate(&db.url).await.unwrap();
    let (decisions, runs) = (db.view("decisions"), db.view("runs"));
    db.run(&format!("DROP VIEW {decisions}; DROP VIEW {runs}")).await;
    // Fewer columns, in another order.
    db.run(&format!(
        "CREATE VIEW {decisions} AS SELECT tenant, id AS decision_id FROM decision_log;
         CREATE VIEW mine AS SELECT decision_id FROM {decisions};
         UPDATE gavel_schema SET checksum = 'older' WHERE version = 0"
    ))
    .await;
    if !db.is_sqlite() {
        db.run(&format!("GRANT SELECT ON {decisions} TO PUBLIC")).await;
    }
    let older = Store::status(&db.url).await.unwrap();
    assert!(older.pending.is_empty() && !older.has_views);
    decisions_of_two_tenants(&db).await;
    assert!(Store::status(&db.url).await.unwrap().has_views);
    assert_eq!(db.count("SELECT COUNT(*) FROM mine").await, 2);
    assert_eq!(db.count(&format!("SELECT COUNT(created_us) FROM {decisions}")).await, 2);
    assert_eq!(db.count(&format!("SELECT COUNT(*) FROM {runs}")).await, 0);
    if !db.is_sqlite() {
        let granted = "SELECT COUNT(*) FROM information_schema.table_privileges WHERE table_schema = 'gavel_v1' \
                       AND table_name = 'decisions' AND grantee = 'PUBLIC'";
        assert_eq!(db.count(granted).await, 1);
    }
}

/// A process of an older version that starts beside newer ones leaves their views as they are.
pub(crate) async fn newer_views_are_left_as_they_are(db: TestDb) {
    Store::migrate(&db.url).await.unwrap();
    let audit = db.view("audit");
    let drop = if db.is_sqlite() {
        "DROP VIEW IF EXISTS"
    } else {
        "DROP VIEW"
    };
    db.run(&format!(
        "{drop} {audit}; CREATE VIEW {audit} AS SELECT number, 'later' AS added FROM audit;
         UPDATE gavel_schema SET checksum = 'newer' WHERE version = 0"
    ))
    .await;
    let refused = Store::migrate(&db.url).await.unwrap_err().to_string();
    assert!(refused.contains("audit is that of a newer version"), "{refused}");
    // gavel works without its own.
    decisions_of_two_tenants(&db).await;
    assert_eq!(db.count(&format!("SELECT COUNT(added) FROM {audit}")).await, 2);
    assert_eq!(
        db.line("SELECT checksum FROM gavel_schema WHERE version = 0").await,
        "newer"
    );
}

/// What each may read: its views, and never a table, another tenant's row, or a text that it was not given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_analysts_role_reads_its_views_and_nothing_else() {
    let db = TestDb::postgres().await;
    decisions_of_two_tenants(&db).await;
    // Roles are those of the whole server.
    let name = format!(
        "ana of \"{}\"",
        db.url.rsplit('/').next().unwrap().get(..8).unwrap_or("db")
    );
    let role = format!("\"{}\"", name.replace('"', "\"\""));
    let own = format!("\"gavel_v1_{}\"", name.replace('"', "\"\""));
    let as_role = |sql: &str| format!("BEGIN; SET LOCAL ROLE {role}; {sql}; ROLLBACK");
    let of = |tenant: Option<&str>, content| Analyst {
        name: name.clone(),
        tenant: tenant.map(|tenant| TenantId::parse(tenant).unwrap()),
        content,
    };
    let seen = async |from: &str| match db.try_rows(&as_role(&format!("SELECT COUNT(*) FROM {from}"))).await {
        Ok(rows) => rows[0][0].clone().unwrap(),
        Err(error) => error.as_database_error().unwrap().code().unwrap().into_owned(),
    };
    const DENIED: &str = "42501";
    let all = [
        "gavel_v1.decisions",
        "gavel_v1.decision_content",
        "gavel_v1.tool_invocation_content",
    ];
    let mine = all.map(|view| view.replace("gavel_v1", &own));
    for (analyst, of_all, of_one) in [
        (of(None, true), ["2", "2", "2"], ["3F000"; 3]),
        (of(None, false), ["2", DENIED, DENIED], ["3F000"; 3]),
        (of(Some("acme"), true), [DENIED; 3], ["1", "1", "1"]),
        (of(Some("acme"), false), [DENIED; 3], ["1", DENIED, DENIED]),
        (of(Some("zeta"), true), [DENIED; 3], ["1", "1", "1"]),
        (of(None, true), ["2", "2", "2"], [DENIED; 3]),
    ] {
        Store::allow(&db.url, &analyst).await.unwrap();
        // As at the start of a later version.
        db.run("UPDATE gavel_schema SET checksum = 'older' WHERE version = 0")
            .await;
        Store::migrate(&db.url).await.unwrap();
        for (views, expected) in [(&all.map(str::to_owned), of_all), (&mine, of_one)] {
            for (view, expected) in views.iter().zip(expected) {
                // Before it has a schema of its own there is none, which is error 42P01 or 3F000.
                let found = seen(view).await;
                assert!(
                    found == expected || expected == "3F000" && found == "42P01",
                    "{analyst:?} {view}: {found}"
                );
            }
        }
        for table in [
            "decision_log",
            "tool_invocation_log",
            "content_blob",
            "agent_run",
            "audit_key",
            "analyst",
        ] {
            assert_eq!(seen(table).await, DENIED, "{table}");
        }
        let schema = if analyst.tenant.is_some() { &own } else { "gavel_v1" };
        let details = seen(&format!("{schema}.audit_content")).await;
        assert_eq!(
            details == DENIED || details == "42P01",
            !analyst.content,
            "{analyst:?}: {details}"
        );
        if let Some(tenant) = &analyst.tenant {
            let view = format!("{own}.decisions WHERE tenant = '{tenant}'");
            assert_eq!(seen(&view).await, "1");
            // A function of its own sees no other tenant's rows, however cheap the planner thinks it.
            let spies = as_role(&format!(
                "CREATE FUNCTION pg_temp.spy(text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN
                     RAISE EXCEPTION 'seen: %', $1; END $$;
                 SELECT * FROM {own}.decisions WHERE pg_temp.spy(tenant)"
            ));
            let error = db.try_rows(&spies).await.unwrap_err().to_string();
            assert!(error.contains(&format!("seen: {tenant}")), "{error}");
        }
        let writes = as_role("DELETE FROM gavel_v1.decisions");
        assert!(db.try_rows(&writes).await.is_err());
    }
    let settings = "SELECT array_to_string(setconfig, ' ') FROM pg_db_role_setting s \
                    JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()";
    let settings = db.line(settings).await;
    for setting in [
        "default_transaction_read_only=on",
        "statement_timeout=60s",
        "search_path=gavel_v1",
    ] {
        assert!(settings.contains(setting), "{settings}");
    }
    let superuser = Analyst {
        name: db.line("SELECT current_user").await,
        ..of(None, true)
    };
    let refused = Store::allow(&db.url, &superuser).await.unwrap_err().to_string();
    assert!(refused.contains("name another role"), "{refused}");
    let commented = "SELECT COUNT(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                     WHERE c.relnamespace = 'gavel_v1'::regnamespace AND a.attnum > 0 \
                     AND col_description(c.oid, a.attnum) IS NULL";
    assert_eq!(db.count(commented).await, 0, "each column has its comment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_has_no_roles_and_says_what_to_do() {
    let db = TestDb::sqlite().await;
    let analyst = Analyst {
        name: "ana".to_owned(),
        tenant: None,
        content: true,
    };
    let error = Store::allow(&db.url, &analyst).await.err().unwrap();
    assert!(
        matches!(error, StoreError::Unfit(_)) && error.to_string().contains("copy"),
        "{error}"
    );
}

/// A database whose owner lets gavel create no schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_may_not_be_created_is_an_error_that_says_what_to_do() {
    let db = TestDb::postgres().await.emptied().await;
    let name = db.url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    db.run(&format!(
        "CREATE ROLE \"g{name}\" LOGIN; GRANT ALL ON SCHEMA public TO \"g{name}\"; \
         REVOKE CREATE ON DATABASE \"{name}\" FROM PUBLIC"
    ))
    .await;
    let url = {
        let mut url = url::Url::parse(&db.url).unwrap();
        url.set_username(&format!("g{name}")).unwrap();
        url.to_string()
    };
    let error = Store::migrate(&url).await.err().unwrap().to_string();
    assert!(
        error.contains("permission denied") && error.contains("CREATE SCHEMA gavel_v1"),
        "{error}"
    );
    let config = StoreConfig {
        serves: None,
        ..StoreConfig::new(&url, InstanceId::new())
    };
    Store::open(config).await.unwrap().shutdown().await;
    db.run(&format!("CREATE SCHEMA gavel_v1 AUTHORIZATION \"g{name}\""))
        .await;
    assert!(Store::migrate(&url).await.unwrap().has_views);
}
