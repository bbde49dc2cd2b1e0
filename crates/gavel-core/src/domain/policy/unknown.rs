//! Names in rules that match nothing: a misspelled rule never applies, and its own tests have the same error.

use super::{AGENTS, Names, Policy};
use gavel_reading::nearest;

/// What the names in rules are compared with.
#[derive(Debug)]
pub struct Known<'a> {
    /// The tools that connected servers offer: the server's name, and the tool's.
    pub tools: Vec<(&'a str, &'a str)>,
    /// The servers that offer nothing now. Names with such a server in them are not reported.
    pub down: Vec<&'a str>,
    /// The agents of the configuration.
    pub agents: Vec<&'a str>,
}

impl Policy {
    /// A sentence for each name in a rule that matches none of the known tools or agents.
    #[must_use]
    pub fn unknown_names(&self, known: &Known<'_>) -> Vec<String> {
        let called = known.agents.iter().map(|agent| (AGENTS, *agent));
        let tools: Vec<_> = known
            .tools
            .iter()
            .copied()
            .chain(called)
            .flat_map(|(server, tool)| [tool.to_owned(), format!("{server}__{tool}")])
            .collect();
        let agents: Vec<_> = known.agents.iter().map(|&agent| agent.to_owned()).collect();
        let mut found = Vec::new();
        for rule in &self.rules {
            let place = format!("rule {} ({}:{})", rule.name, self.file, rule.line);
            for name in rule.tools.without_match(&tools) {
                if !known.down.iter().any(|server| name.starts_with(&format!("{server}__"))) {
                    let tip = tip(name, &tools);
                    found.push(format!(
                        "{place} names the tool {name:?}, which no connected server offers{tip}"
                    ));
                }
            }
            for name in rule.agents.iter().flat_map(|names| names.without_match(&agents)) {
                let tip = tip(name, &agents);
                found.push(format!(
                    "{place} names the agent {name:?}, which is not in this configuration{tip}"
                ));
            }
        }
        found
    }
}

impl Names {
    /// The names, as written, that match none of `all`.
    fn without_match<'a>(&'a self, all: &[String]) -> impl Iterator<Item = &'a str> {
        let mut matched = vec![false; self.written.len()];
        for name in all {
            self.set.matches(name).into_iter().for_each(|at| matched[at] = true);
        }
        let names = self.written.iter().zip(matched);
        names.filter(|(_, matched)| !matched).map(|(name, _)| &**name)
    }
}

fn tip(name: &str, all: &[String]) -> String {
    let nearest = nearest(name, all.iter().map(String::as_str));
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// a rule that can never apply is reported, with the name that was probably meant.
    #[test]
    fn a_name_that_matches_no_tool_or_agent_is_reported_with_the_nearest_one() {
        let text = "rules:
- {name: a, tools: [shop__order_artcle, order_article, 'shop__*', '*'], then: deny, reason: r}
- {name: b, tools: [agent__buyer, byer, google__gmail_send], agents: [buyerr, 'b*'], then: deny, reason: r}
- {name: c, tools: ['mail__*'], then: deny, reason: r}
";
        let policy = Policy::read(text, "policy.yaml").unwrap();
        let known = Known {
            tools: vec![("shop", "order_article"), ("shop", "list_articles")],
            down: vec!["google"],
            agents: vec!["buyer"],
        };
        assert_eq!(
            policy.unknown_names(&known),
            [
                "rule a (policy.yaml:2) names the tool \"shop__order_artcle\", which no connected server offers; \
                 did you mean shop__order_article?",
                "rule b (policy.yaml:3) names the tool \"byer\", which no connected server offers; did you mean buyer?",
                "rule b (policy.yaml:3) names the agent \"buyerr\", which is not in this configuration; did you mean buyer?",
                "rule c (policy.yaml:4) names the tool \"mail__*\", which no connected server offers",
            ]
        );
    }
}
