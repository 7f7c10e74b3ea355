//! The stays on machines of a run that a bundle carries: which one goes on. Pure.
//!
//! Arms are compared within a round, and a round belongs to one session, so what one machine
//! is faster than another of its kind cancels. An effect need not be the same on machines of
//! another kind: those are refused (docs/adr/0026).

use super::format::Session;

/// The facts in which all machines of one record agree.
pub const KIND: [&str; 5] = [
    "architecture",
    "processor",
    "logical processors",
    "GPU",
    "GPU driver",
];

/// What a run does with its record on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Goes on with the session that ran last, as if nothing had happened.
    GoOn(u32),
    /// Begins this session, with priming.
    Begin(u32),
    /// The record was begun on another kind of machine.
    Refuse(Difference),
}

/// A fact in which two machines differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the fact.
    pub fact: &'static str,
    /// What the first session has.
    pub expected: String,
    /// What this machine has.
    pub got: String,
}

/// Whether this stay is the last one of `known`, a further one, or not allowed.
#[must_use]
pub fn decide(known: &[Session], here: &Session) -> Ruling {
    let Some((first, last)) = known.first().zip(known.last()) else {
        return Ruling::Begin(1);
    };
    let fact = |session: &Session, name: &str| {
        let fact = session.facts.get(name);
        fact.map_or_else(|| "none".to_owned(), Clone::clone)
    };
    let differs = |name: &&&str| fact(first, name) != fact(here, name);
    if let Some(name) = KIND.iter().find(differs) {
        return Ruling::Refuse(Difference {
            fact: name,
            expected: fact(first, name),
            got: fact(here, name),
        });
    }
    if last.stay == here.stay && last.passed_env_check == here.passed_env_check {
        Ruling::GoOn(last.session)
    } else {
        Ruling::Begin(last.session + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::SCHEMA;
    use super::*;

    fn session(number: u32, stay: &str, gpu: &str) -> Session {
        Session {
            schema: SCHEMA,
            session: number,
            stay: stay.into(),
            facts: [("GPU".to_owned(), gpu.to_owned())].into(),
            ..Session::default()
        }
    }

    #[test]
    fn the_same_stay_goes_on_and_another_one_begins_a_session() {
        assert_eq!(decide(&[], &session(0, "a", "H200")), Ruling::Begin(1));
        let known = [session(1, "a", "H200"), session(2, "b", "H200")];
        let here = |stay| decide(&known, &session(0, stay, "H200"));
        assert_eq!(here("b"), Ruling::GoOn(2));
        // Back on the first machine: nothing there is warm any more.
        assert_eq!(here("a"), Ruling::Begin(3));
        let mut other = session(0, "b", "H200");
        other.passed_env_check = Some("0000".into());
        assert_eq!(decide(&known, &other), Ruling::Begin(3));
    }

    #[test]
    fn another_kind_of_machine_is_refused_by_name() {
        let known = [session(1, "a", "NVIDIA H200")];
        let refused = |here: &Session| match decide(&known, here) {
            Ruling::Refuse(difference) => difference,
            other => panic!("{other:?}"),
        };
        let gpu = refused(&session(0, "a", "NVIDIA L4"));
        assert_eq!((gpu.fact, gpu.got.as_str()), ("GPU", "NVIDIA L4"));
        assert_eq!(refused(&Session::default()).got, "none");
    }
}
