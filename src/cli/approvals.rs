//! `gavel approvals`: approval requests and their answers, in-doubt actions, and grants. Without `--server` the run
//! continues in this process, so an answer is rejected while another gavel uses the database, unless `--here` is given.

mod question;

pub(super) use self::question::{Question, answers, question, settles};
use crate::api::approvals::{
    ActionInDoubt, ActionInDoubtPage, ApprovalPage, Grant, GrantPage, PendingApproval, ResolveBody, SettleBody,
};
use crate::api::threads::RunAnswer;
use crate::app::running_process;
use crate::cli::client::Wait;
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Work};
use crate::cli::interrupt::{or_stopped, or_stopped_with};
use crate::cli::list::{self, Column, Paging, at, clipped, more};
use crate::cli::{commands, output, shows, why};
use crate::config::Config;
use crate::domain::action::{self, ActionStatus};
use crate::domain::ids::{ActionId, ApprovalId, GrantId};

commands! {
    /// The commands of `gavel approvals`.
    Command {
        /// List approval requests and in-doubt actions, oldest first, with all details that an answer needs
        List(List),
        /// Show why an action needed a person: rules, answer, audit
        Why(Why),
        /// Approve a call: it runs once, with exactly the arguments shown
        Approve(Approve),
        /// Reject a call: it does not run
        Reject(Reject),
        /// Say whether an in-doubt action had its effect
        Settle(Settle),
        /// List grants
        Grants(Grants),
        /// Revoke a grant
        Revoke(Revoke),
    }
}

/// The path for answers to approval requests.
pub(super) const RESOLVE: &str = "api/agent/approvals/resolve";

/// Options of `gavel approvals list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(super) struct List {
    /// Only in-doubt actions
    #[arg(long)]
    in_doubt: bool,
    #[command(flatten)]
    paging: Paging,
}

/// The path of the list of in-doubt actions.
const IN_DOUBT: &str = "api/agent/actions/in-doubt";

const LIST_EXAMPLES: &str = "\
Examples:
  gavel approvals list
  gavel approvals list --json | jq -r .approvalId
  gavel approvals list --in-doubt --json | jq -r .actionId
  gavel approvals list --server https://gavel.internal --user ann

Each is shown in full: an answer applies to exactly these arguments. An action is in doubt if it was sent and \
its outcome is unknown. gavel never repeats it: a user has to find out whether it happened.";

impl Talk for List {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let answering = gavel.answering().await?;
        let (query, whose) = (self.paging.query(), gavel.place.whose_words());
        let (json, is_first) = (self.paging.json, query.page_token.is_none());
        let mut is_apart = false;
        if !self.in_doubt {
            let page = gavel
                .page::<ApprovalPage, _>("api/agent/approvals/pending", &query)
                .await?;
            let request = |one: &PendingApproval| {
                let one = one.into();
                format!("{}\n{}", question(&one), question::answers(&one, &answering))
            };
            list::print(json, &page.items, &format!("no approval requests{whose}"), |all| {
                blocks(all, request)
            })?;
            more(&page, "more: the same command with");
            // In-doubt actions are below the first page of approval requests, in text output only.
            if json || !is_first {
                return Ok(Exit::Done);
            }
            is_apart = !page.items.is_empty();
        }
        let page = gavel.page::<ActionInDoubtPage, _>(IN_DOUBT, &query).await?;
        if is_apart && !page.items.is_empty() {
            output::line("")?;
        }
        let (none, option) = match self.in_doubt {
            true => (format!("no in-doubt actions{whose}"), ""),
            false => (String::new(), " --in-doubt and"),
        };
        let one =
            |one: &ActionInDoubt| format!("{}\n{}", question::in_doubt(one), question::settling(one, &gavel.place));
        list::print(json, &page.items, &none, |all| blocks(all, one))?;
        more(&page, &format!("more in doubt: the same command with{option}"));
        Ok(Exit::Done)
    }
}

/// Objects in full, with a line between them.
fn blocks<T>(all: &[T], one: impl Fn(&T) -> String) -> String {
    all.iter().map(one).collect::<Vec<_>>().join("\n")
}

shows! {
    /// Options of `gavel approvals why`.
    Why("The approval request, or the action" ActionId) = "api/agent/actions/{}/why", why::of_action;
}

/// Options of `gavel approvals settle`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SETTLE_EXAMPLES)]
pub(super) struct Settle {
    /// The in-doubt action
    id: ActionId,
    /// Whether it happened
    #[arg(value_parser = ["happened", "did_not_happen"])]
    what: String,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

const SETTLE_EXAMPLES: &str = "\
Examples:
  gavel approvals settle 0198c2b6-1111-7c52-9d3b-5a1c4e6f7a80 happened

An action is in doubt if it was sent and its outcome is unknown. It is never repeated automatically:
check the receiving system (the mailbox, the calendar), then report the result here.";

impl Talk for Settle {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let happened = self.what == "happened";
        let path = format!("api/agent/actions/{}/settle", self.id);
        let run = or_stopped(gavel.post(&path, &[], Wait::No, &SettleBody { happened })).await?;
        output::answer(self.json, &run, run_message)
    }
}

/// Options of `gavel approvals approve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = APPROVE)]
pub(super) struct Approve {
    /// Also create a grant: later calls of the tool to exactly the same recipients run without approval
    #[arg(long)]
    always: bool,
    #[command(flatten)]
    how: How,
}

/// Options of `gavel approvals reject`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = REJECT)]
pub(super) struct Reject {
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
struct How {
    /// The approval request
    id: ApprovalId,
    /// The reason, for the records; the agent reads that of a rejection
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Continue the run in this process, with its own policy, servers and model, even while another gavel uses the
    /// database
    #[arg(long, conflicts_with = "server")]
    here: bool,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

const APPROVE: &str = "\
Examples:
  gavel approvals approve 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel approvals approve 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 --always

If several approvers answer, only the first answer counts; repeating the same answer changes nothing, so it is safe \
after a lost connection. `gavel approvals grants` lists the grants.

Exit status: 0 the answer counts; 1 it does not, or it does and an action of the run is in doubt.";

const REJECT: &str = "\
Examples:
  gavel approvals reject 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 --reason 'wrong Bob'

The call does not run. The agent reads the reason and continues, or its run ends (setting runs.on_reject).";

impl Talk for Approve {
    const WORK: Work = Work::Act;

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        self.how.check(config).await
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let decision = match self.always {
            true => action::Resolution::ApproveAndAlwaysAllowRecipient,
            false => action::Resolution::ApproveOnce,
        };
        self.how.resolve(gavel, decision).await
    }
}

impl Talk for Reject {
    const WORK: Work = Work::Act;

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        self.how.check(config).await
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        self.how.resolve(gavel, action::Resolution::Reject).await
    }
}

impl How {
    /// A rule of the other gavel may forbid the call, or its servers may differ: that must not be bypassed silently.
    async fn check(&self, config: &Config) -> anyhow::Result<()> {
        if self.here {
            return Ok(());
        }
        let Some(other) = running_process(config).await? else {
            return Ok(());
        };
        let url = other.url.as_deref().unwrap_or("URL");
        Err(Usage(format!(
            "another gavel uses this database: answer through it with --server {url}, and --user NAME unless a key says who \
             you are, so that its policy and servers apply; `gavel approvals list` prints the whole command. Or give --here \
             to continue the run in this process, with its own policy and servers"
        ))
        .into())
    }

    async fn resolve(&self, gavel: &Gavel, decision: action::Resolution) -> anyhow::Result<Exit> {
        let resolution = ResolveBody {
            approval_id: self.id,
            decision,
            reason: self.reason.clone(),
        };
        let unknown = "the answer counts; it is safe to repeat the command";
        let run = or_stopped_with(gavel.post(RESOLVE, &[], Wait::Ended, &resolution), unknown).await?;
        output::answer(self.json, &run, run_message)?;
        let in_doubt: Vec<_> = run
            .actions
            .iter()
            .filter(|action| action.state == ActionStatus::InDoubt)
            .collect();
        for action in in_doubt.iter().filter(|_| !self.json) {
            output::note(&format!(
                "{}: the outcome is unknown\n{}",
                output::printable(&action.tool),
                settles(action.action_id, &gavel.place.repeated()).trim_end()
            ));
        }
        Ok(if in_doubt.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// The result as text: each action, the run, its summary.
fn run_message(run: &RunAnswer) -> String {
    let mut lines: Vec<String> = Vec::new();
    for action in &run.actions {
        let mut line = format!("{}: {}", action.tool, action.state);
        if let Some(code) = &action.error_code {
            line.push_str(&format!(" ({code})"));
        }
        if let Some(why) = &action.error_message {
            line.push_str(&format!(": {why}"));
        }
        lines.push(line);
    }
    lines.push(format!("run {}: {}", run.run_id, run.state));
    if !run.summary.trim().is_empty() {
        lines.push(run.summary.clone());
    }
    output::printable(&lines.join("\n"))
}

/// Options of `gavel approvals grants`.
#[derive(Debug, clap::Args)]
pub(super) struct Grants {
    #[command(flatten)]
    paging: Paging,
}

/// Options of `gavel approvals revoke`.
#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// The grant; it no longer applies to any call that has not been checked yet
    id: GrantId,
}

const COLUMNS: &[Column<Grant>] = &[
    ("grant", |grant| grant.grant_id.to_string()),
    ("user", |grant| clipped(&grant.user_id, 24)),
    ("tool", |grant| clipped(&grant.tool, 32)),
    ("used", |grant| grant.uses.to_string()),
    ("given by", |grant| clipped(&grant.created_by, 32)),
    ("given", |grant| at(grant.created_at)),
    ("state", |grant| match grant.revoked_at {
        Some(when) => format!("revoked {}", at(when)),
        None => "counts".to_owned(),
    }),
    // Not clipped: the user must see all that the grant covers.
    ("recipients", |grant| {
        let recipients = grant.recipients_by_argument.by_argument().map(|(argument, addresses)| {
            let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
            format!("{argument}: {}", addresses.join(", "))
        });
        recipients.collect::<Vec<_>>().join("; ")
    }),
];

impl Talk for Grants {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let answering = gavel.answering().await?;
        let page = gavel
            .page::<GrantPage, _>("api/agent/grants", &self.paging.query())
            .await?;
        self.paging.print(&page, "there are no grants", COLUMNS)?;
        let valid = page.items.iter().find(|grant| grant.revoked_at.is_none());
        if let Some(valid) = valid.filter(|_| !self.paging.json) {
            let place = answering.for_call_of(Some(&valid.user_id)).repeated();
            let id = &valid.grant_id;
            output::note(&format!("to revoke a grant: gavel approvals revoke{place} {id}"));
        }
        Ok(Exit::Done)
    }
}

impl Talk for Revoke {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        or_stopped(gavel.delete(&format!("api/agent/grants/{}", self.id))).await?;
        output::line(&format!("grant {} is revoked", self.id))?;
        Ok(Exit::Done)
    }
}
