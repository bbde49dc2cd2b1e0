//! The SELECT over the analysts' views that answers a question.

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
        columns.extend(measure(asked)?);
    }
    let filter = filter(query)?;
    let rows = rows(
        view,
        &columns.join(",\n    "),
        query,
        visitor,
        &[Some(ended.to_owned()), filter],
    );
    Some(match groups.is_empty() {
        true => format!("{rows};"),
        false => format!("{rows}\nGROUP BY {0}\nORDER BY {0};", groups.join(", ")),
    })
}

/// The SELECT that lists decisions; `None` as above.
pub(super) fn list(query: &StatsQuery, visitor: &Visitor) -> Option<String> {
    let filter = filter(query)?;
    Some(format!(
        "{}\nORDER BY created_us DESC;",
        rows("decisions", "*", query, visitor, &[filter])
    ))
}

fn rows(view: &str, columns: &str, query: &StatsQuery, visitor: &Visitor, more: &[Option<String>]) -> String {
    let mut conditions = vec![format!("tenant = {}", text(visitor.caller.tenant.as_str()))];
    conditions.extend(visitor.rows().map(|user| format!("user_id = {}", text(user.as_str()))));
    conditions.extend(query.from.map(|from| format!("created_us >= {}", from.0)));
    conditions.extend(query.to.map(|to| format!("created_us < {}", to.0)));
    conditions.extend(more.iter().flatten().cloned());
    format!(
        "SELECT {columns}\nFROM gavel_v1.{view}\nWHERE {}",
        conditions.join("\n    AND ")
    )
}

/// The condition of the question's filter; the outer `None` as for [`count`].
fn filter(query: &StatsQuery) -> Option<Option<String>> {
    Some(match query.filter.as_deref() {
        None => None,
        Some(filter) => Some(conditions(filter)?),
    })
}

/// A measure as a column; no column if the views do not have its number.
fn measure(measure: &Measure) -> Option<Option<String>> {
    let name = match measure {
        Measure::Rate(rate) => {
            let name = rate.name.as_deref().unwrap_or("rate");
            return Some(Some(format!(
                "avg(CASE WHEN {} THEN 1.0 ELSE 0.0 END) AS {name}",
                conditions(&rate.rate)?
            )));
        }
        Measure::Named(name) => name,
    };
    let Some((kind, field)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) else {
        return Some(Some("count(*)".to_owned()));
    };
    let value = if field == "own_ms" { OWN } else { field };
    Some(match kind {
        _ if field.ends_with("_bytes") => None,
        "sum" if field == "cost_usd" => Some("sum(cost_nano) / 1e9 AS cost_usd".to_owned()),
        "sum" | "avg" => Some(format!("{kind}({value}) AS {field}")),
        percentile => {
            let share = percentile.trim_start_matches('p');
            Some(format!(
                "percentile_cont(0.{share:0>2}) WITHIN GROUP (ORDER BY {value}) AS {percentile}_{field}"
            ))
        }
    })
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A filter that the log has accepted as a condition; `None` if it asks for calls or texts.
fn conditions(filter: &str) -> Option<String> {
    let (mut sql, mut rest) = (Vec::new(), filter.trim());
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let after = after.trim_start();
        rest = match (first, word) {
            ('(' | ')', _) => {
                sql.push(first.to_string());
                &rest[1..]
            }
            ('-', _) => {
                sql.push("NOT".to_owned());
                &rest[1..]
            }
            (_, "AND" | "OR" | "NOT") => {
                sql.push(word.to_owned());
                after
            }
            _ if word.is_empty() || CONTENT.contains(&word) => return None,
            _ => {
                let op = [":", "!=", "<=", ">=", "=", "<", ">"]
                    .into_iter()
                    .find(|op| after.starts_with(op))?;
                let (term, rest) = term(word, op, after[op.len()..].trim_start())?;
                sql.push(term);
                rest
            }
        }
        .trim_start();
    }
    Some(format!("({})", sql.join(" ").replace("( ", "(").replace(" )", ")")))
}

/// A condition, and what follows it.
fn term<'a>(field: &str, op: &str, value: &'a str) -> Option<(String, &'a str)> {
    if !value.starts_with('"') {
        let end = value
            .find(|c: char| c == ')' || c.is_whitespace())
            .unwrap_or(value.len());
        let (word, rest) = value.split_at(end);
        return Some((
            match (op, word) {
                ("=", "null") => format!("{field} IS NULL"),
                ("!=", "null") => format!("{field} IS NOT NULL"),
                ("!=", _) => format!("{field} IS DISTINCT FROM {word}"),
                _ => format!("{field} {op} {word}"),
            },
            rest,
        ));
    }
    let (mut found, mut is_prefix) = (String::new(), false);
    let mut chars = value.char_indices().skip(1);
    let end = loop {
        match chars.next()? {
            (end, '"') => break end,
            (_, '\\') => found.push(chars.next()?.1),
            (_, '*') if op != ":" => is_prefix = true,
            (_, c) => found.push(c),
        }
    };
    let pattern = || {
        text(&format!(
            "{}%",
            found.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
        ))
    };
    let sql = match (op, is_prefix) {
        ("!=", true) => format!("{field} LIKE {} IS NOT TRUE", pattern()),
        (_, true) => format!("{field} LIKE {}", pattern()),
        (":", _) => format!("strpos(lower({field}), lower({})) > 0", text(&found)),
        ("!=", _) => format!("{field} IS DISTINCT FROM {}", text(&found)),
        _ => format!("{field} {op} {}", text(&found)),
    };
    Some((sql, &value[end + 1..]))
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
