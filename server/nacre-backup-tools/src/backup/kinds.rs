//! Kinds of definitions that a restore creates.

use clap::ValueEnum;

/// A kind of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// All of the following
    All,
    /// Design documents
    Views,
    /// Indexes, which are not built
    Indexes,
    /// Search indexes, which begin to build at once
    Search,
    /// Functions, which are not deployed
    Functions,
    /// Packages of plugins, and their deployments, which are paused
    Plugins,
    /// Replications, which are paused
    Replications,
}

/// The kinds that are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kinds<'a>(pub &'a [Kind]);

impl Kinds<'_> {
    /// Returns true if a kind is wanted.
    pub fn has(self, kind: Kind) -> bool {
        self.0.iter().any(|wanted| *wanted == Kind::All || *wanted == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_or_those_that_are_named_are_wanted() {
        assert!(Kinds(&[Kind::All]).has(Kind::Views));
        let some = Kinds(&[Kind::Views, Kind::Plugins]);
        assert!(some.has(Kind::Plugins) && !some.has(Kind::Indexes));
        assert!(!Kinds(&[]).has(Kind::Views));
    }
}
