//! Shares of what all users have together, such as containers.
//!
//! An eighth of the places is reserved for other tenants, and another eighth for other users of the tenant, so that no
//! caller can take everything. With fewer than four places nothing is reserved. Calls that name no user are one user.

use crate::ToolError;

/// Who has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One user.
    User,
    /// All users of one tenant.
    Tenant,
    /// Everyone.
    Server,
}

impl Scope {
    /// Whether a place of `holder` counts for `user` in this scope.
    pub fn has(self, user: Option<&str>, holder: Option<&str>) -> bool {
        match self {
            Self::User => user == holder,
            Self::Tenant => tenant(user) == tenant(holder),
            Self::Server => true,
        }
    }
}

/// There is no place for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// Whose places are taken.
    pub scope: Scope,
    max: usize,
}

impl Full {
    /// Says who has taken the places; `what` is a plural.
    pub fn error(self, code: impl Into<&'static str>, what: &str) -> ToolError {
        let (max, scope) = (self.max, format!("{:?}", self.scope).to_lowercase());
        let words = format!("{max} {what} are the most for one {scope}, and there are as many.");
        ToolError::new(code, words).with("max", max).with("scope", scope)
    }
}

/// How many of the places each scope may have.
pub fn limits(places: usize) -> [(Scope, usize); 3] {
    let reserve = if places < 4 { 0 } else { (places / 8).max(1) };
    [
        (Scope::User, places - 2 * reserve),
        (Scope::Tenant, places - reserve),
        (Scope::Server, places),
    ]
}

/// Checks that this user may have one place more, beside those who have one now.
pub fn check<'a>(
    places: usize,
    user: Option<&str>,
    holders: impl Iterator<Item = Option<&'a str>> + Clone,
) -> Result<(), Full> {
    let is_full = |(scope, max): &(Scope, usize)| {
        let held = holders.clone().filter(|holder| scope.has(user, *holder));
        held.count() >= *max
    };
    match limits(places).into_iter().find(is_full) {
        Some((scope, max)) => Err(Full { scope, max }),
        None => Ok(()),
    }
}

/// The tenant of a user as gavel names it: `TENANT/USER`, or the name alone in the tenant `default`.
fn tenant(user: Option<&str>) -> &str {
    let tenant = user.and_then(|user| user.split_once('/')).map(|(tenant, _)| tenant);
    tenant.unwrap_or("default")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes places until one is refused.
    fn fill(places: usize, taken: &mut Vec<Option<String>>, user: Option<&str>) -> Full {
        loop {
            let holders = taken.iter().map(Option::as_deref);
            if let Err(full) = check(places, user, holders) {
                return full;
            }
            taken.push(user.map(str::to_owned));
        }
    }

    #[test]
    fn no_user_and_no_tenant_takes_every_place() {
        for (places, user, tenant) in [(20, 16, 18), (8, 6, 7), (64, 48, 56), (4, 2, 3)] {
            let mut taken = Vec::new();
            let full = |scope, max| Full { scope, max };
            assert_eq!(fill(places, &mut taken, Some("a/ann")), full(Scope::User, user));
            assert_eq!(fill(places, &mut taken, Some("a/bob")), full(Scope::Tenant, tenant));
            assert_eq!(fill(places, &mut taken, Some("a/cy")), full(Scope::Tenant, tenant));
            assert_eq!(fill(places, &mut taken, Some("ann")), full(Scope::Server, places));
            assert_eq!(taken.len(), places);
        }
        let mut taken = Vec::new();
        assert_eq!(
            fill(3, &mut taken, None),
            Full {
                scope: Scope::User,
                max: 3
            }
        );
    }

    #[test]
    fn the_default_tenant_has_the_users_without_another() {
        for (user, holder, is_one) in [
            (Some("ann"), Some("bob"), true),
            (Some("ann"), None, true),
            (Some("ann"), Some("default/a/b"), true),
            (Some("ann"), Some("a/ann"), false),
            (Some("a/b/c"), Some("a/x"), true),
        ] {
            assert_eq!(Scope::Tenant.has(user, holder), is_one, "{user:?} {holder:?}");
        }
    }
}
