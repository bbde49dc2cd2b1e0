//! The SELECT over the analysts' views that answers a question.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::api::stats::{Bucket, Measure, StatsQuery, StatsSource};
use crate::http::console::session::Visitor;

/// Texts are in views of their own.
const CONTENT: [&str; 3] = ["message", "response", "error_detail"];
/// What gavel itself took of a decision.
const OWN: &str = "duration_ms - coalesce(model_ms, 0) - coalesce(tool_ms, 0) - coalesce(human_ms, 0)";

/// The SELECT that counts what the question counts; `None` if its filter asks for calls or texts.
pub(super) fn count(query: &StatsQuery, visitor: &Visitor) -> Option<String> {
    let (view, ended) = match query.source {
        Some(StatsSource::ToolInvocations) => ("tool_invocations", "status <> 'started'"),
        _ => ("decisions", "status = 'closed'"),
    };
    let mut columns = Vec::new();
    if let Some(bucket) = query.bucket {
        let zone = text(query.time_zone.as_deref().unwrap_or("UTC"));
        columns.push(format!(
            "date_trunc('{}', created_at, {zone}) AS bucket",
            Bucket::as_str(bucket)
        ));
    }
    columns.extend(query.by.iter().cloned());
    let groups: Vec<_> = (1..=columns.len()).map(|column| column.to_string()).collect();
    for asked in &query.measures {
        columns.push(measure(asked)?);
    }
    let rows = rows(view, &columns.join(",\n    "), Some(ended), query, visitor)?;
    Some(match groups.is_empty() {
        true => format!("{rows};"),
        false => format!("{rows}\nGROUP BY {0}\nORDER BY {0};", groups.join(", ")),
    })
}

/// The SELECT that lists decisions; `None` as above.
pub(super) fn list(query: &StatsQuery, visitor: &Visitor) -> Option<String> {
    let rows = rows("decisions", "*", None, query, visitor)?;
    Some(format!("{rows}\nORDER BY created_us DESC;"))
}

fn rows(view: &str, columns: &str, ended: Option<&str>, query: &StatsQuery, visitor: &Visitor) -> Option<String> {
    let mut all = vec![format!("tenant = {}", text(visitor.caller.tenant.as_str()))];
    all.extend(visitor.rows().map(|user| format!("user_id = {}", text(user.as_str()))));
    all.extend(query.from.map(|from| format!("created_us >= {}", from.0)));
    all.extend(query.to.map(|to| format!("created_us < {}", to.0)));
    all.extend(ended.map(str::to_owned));
    if let Some(filter) = &query.filter {
        all.push(conditions(filter)?);
    }
    let all = all.join("\n    AND ");
    Some(format!("SELECT {columns}\nFROM gavel_v1.{view}\nWHERE {all}"))
}

/// A measure as a column.
fn measure(measure: &Measure) -> Option<String> {
    let name = measure.name();
    if let Measure::Rate(rate) = measure {
        let is_such = conditions(&rate.rate)?;
        return Some(format!("avg(CASE WHEN {is_such} THEN 1.0 ELSE 0.0 END) AS {name}"));
    }
    let Some((kind, field)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) else {
        return Some("count(*)".to_owned());
    };
    let value = if field == "own_ms" { OWN } else { field };
    Some(match kind {
        "sum" if field == "cost_usd" => "sum(cost_nano) / 1e9 AS cost_usd".to_owned(),
        "sum" | "avg" => format!("{kind}({value}) AS {field}"),
        percentile => {
            let share = percentile.trim_start_matches('p');
            format!("percentile_cont(0.{share:0>2}) WITHIN GROUP (ORDER BY {value}) AS {percentile}_{field}")
        }
    })
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A filter that the log has accepted as a condition; `None` if it asks for calls or texts.
fn conditions(filter: &str) -> Option<String> {
    let (mut sql, mut end) = (Vec::new(), 0);
    for part in PART.captures_iter(filter) {
        let whole = part.get_match();
        if !filter[end..whole.start()].trim().is_empty() {
            return None;
        }
        end = whole.end();
        sql.push(match part.name("field") {
            Some(field) if CONTENT.contains(&field.as_str()) => return None,
            Some(_) => condition(&part),
            None if whole.as_str() == "-" => "NOT".to_owned(),
            None => whole.as_str().to_owned(),
        });
    }
    let sql = sql.join(" ").replace("( ", "(").replace(" )", ")");
    filter[end..].trim().is_empty().then(|| format!("({sql})"))
}

/// The parts of a filter.
static PART: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?x) [()] | - | \b(?:AND|OR|NOT)\b
            | (?<field>\w+) \s* (?<op> : | [!<>]= | [=<>] ) \s*
              (?: "(?<text> (?: [^"\\*] | \\. )* )(?<prefix>\*?)" | (?<word>[^\s()]+) )"#,
    )
});
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| regex(r"\\(.)"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

fn condition(part: &Captures<'_>) -> String {
    let (field, op) = (&part["field"], &part["op"]);
    let is_prefix = op != ":" && part.name("prefix").is_some_and(|star| !star.is_empty());
    let found = part.name("text").map(|found| ESCAPED.replace_all(found.as_str(), "$1"));
    let value = match &found {
        None => part["word"].to_owned(),
        Some(found) if is_prefix => {
            let literal = found.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            text(&format!("{literal}%"))
        }
        Some(found) => text(found),
    };
    match op {
        "=" if value == "null" => format!("{field} IS NULL"),
        "!=" if value == "null" => format!("{field} IS NOT NULL"),
        "!=" if is_prefix => format!("{field} LIKE {value} IS NOT TRUE"),
        "!=" => format!("{field} IS DISTINCT FROM {value}"),
        ":" => format!("strpos(lower({field}), lower({value})) > 0"),
        _ if is_prefix => format!("{field} LIKE {value}"),
        _ => format!("{field} {op} {value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_the_same_meaning_in_sql() {
        for (filter, sql) in [
            (r#"outcome_category = "ERROR:*""#, "(outcome_category LIKE 'ERROR:%')"),
            (
                r#"(surface = "chat" OR model != null) AND NOT duration_ms>=5"#,
                "((surface = 'chat' OR model IS NOT NULL) AND NOT duration_ms >= 5)",
            ),
            (
                r#"agent_id != "o'neil\"" AND recovered = true"#,
                "(agent_id IS DISTINCT FROM 'o''neil\"' AND recovered = true)",
            ),
            (r#"intent != "add_*""#, r"(intent LIKE 'add\_%' IS NOT TRUE)"),
            (r#"intent : "\*task""#, "(strpos(lower(intent), lower('*task')) > 0)"),
        ] {
            assert_eq!(conditions(filter).as_deref(), Some(sql));
        }
        for other in [r#"call.tool = "x""#, "refund", r#""refund""#, r#"message : "x""#] {
            assert_eq!(conditions(other), None, "{other}");
        }
    }
}
