//! Whether an attempt's output is what it should be. Pure: values in, answer out.

use indexmap::IndexMap;
use serde_json::Value;

use super::json;
use crate::experiment::condition::{self, Comparison};
use crate::experiment::matrix::{self, Cell};
use crate::experiment::model::{CellExpect, Condition, Expect, Scalar};
use crate::record::format::Attempt;

/// One broken expectation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: expected {expected}, got {got}")]
pub struct Broken {
    /// The dotted path of the field.
    pub field: String,
    /// The condition.
    pub expected: String,
    /// The value.
    pub got: String,
}

/// Checks one field of `document`.
///
/// # Errors
/// The field is missing, or its value does not fulfil the condition.
pub fn check(document: &Value, field: &str, condition: &Condition) -> Result<(), Broken> {
    let broken = |expected: String, got: String| Broken {
        field: field.to_owned(),
        expected,
        got,
    };
    let (comparison, operand) =
        condition::parse(condition).map_err(|error| broken(error.to_string(), shown(condition)))?;
    let expected = match comparison {
        Comparison::Equal => shown(&operand),
        other => format!("{} {}", other.sign(), shown(&operand)),
    };
    let Some(value) = json::field(document, field) else {
        return Err(broken(expected, "no such field".into()));
    };
    if holds(value, comparison, &operand) {
        Ok(())
    } else {
        Err(broken(expected, json::shown(value)))
    }
}

/// Whether `value` stands in the relation `comparison` to `operand`.
///
/// Numbers are compared by value, whether written as whole numbers or not; other
/// scalars are equal or not; nothing is converted (`"128"` is not 128).
fn holds(value: &Value, comparison: Comparison, operand: &Scalar) -> bool {
    use std::cmp::Ordering;
    let order = match (value, operand) {
        (Value::Number(left), Scalar::Int(right)) => compare_int(left, *right),
        (Value::Number(left), Scalar::Float(right)) => {
            left.as_f64().and_then(|left| left.partial_cmp(right))
        }
        (Value::Bool(left), Scalar::Bool(right)) if left == right => Some(Ordering::Equal),
        (Value::String(left), Scalar::Text(right)) if left == right => Some(Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
    }
}

fn compare_int(left: &serde_json::Number, right: i64) -> Option<std::cmp::Ordering> {
    // Exact where both are whole: a double cannot tell 2^53 from 2^53 + 1.
    if let Some(left) = left.as_i64() {
        return Some(left.cmp(&right));
    }
    if left.as_u64().is_some() {
        return Some(std::cmp::Ordering::Greater);
    }
    #[expect(clippy::cast_precision_loss, reason = "the other side is a double")]
    let right = right as f64;
    left.as_f64().and_then(|left| left.partial_cmp(&right))
}

fn shown(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => json::shown(&Value::String(text.clone())),
        other => other.to_string(),
    }
}

/// Whether an expectation of some cells is about `cell` and `arm`, an arm of the file.
#[must_use]
pub fn applies(expectation: &CellExpect, cell: &Cell, arm: &str) -> bool {
    let of_arm = expectation.arms.is_empty() || expectation.arms.iter().any(|name| name == arm);
    of_arm && matrix::selects(&expectation.when, &cell.values)
}

/// A field in which an arm differs from the reference arm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{field}` must be the same in all arms: expected {expected} as in `{reference}`, got {got}"
)]
pub struct Difference {
    /// The dotted path of the field.
    pub field: String,
    /// The arm that differs.
    pub arm: String,
    /// The arm it was compared with.
    pub reference: String,
    /// The reference arm's value.
    pub expected: String,
    /// The arm's value.
    pub got: String,
}

/// What `row` says otherwise than the base, in a field that must be the same in all arms.
///
/// It is compared with the base's first good attempt of the same cell among `earlier`,
/// or, before there is one, with any arm's: whoever disagrees with the base is at fault,
/// whatever the order in which arms ran.
#[must_use]
pub fn differs(expect: &Expect, base: &str, row: &Attempt, earlier: &[Attempt]) -> Option<String> {
    if expect.same_across_arms.is_empty() {
        return None;
    }
    let mut good = earlier
        .iter()
        .filter(|other| other.cell == row.cell && other.outcome.is_ok());
    let reference = good
        .clone()
        .find(|other| other.arm == base)
        .or_else(|| good.next())?;
    let pair = [
        (reference.arm.as_str(), &reference.fields),
        (row.arm.as_str(), &row.fields),
    ];
    same_across_arms(&expect.same_across_arms, &pair)
        .first()
        .map(ToString::to_string)
}

/// Compares `names` of several attempts: each against the first of `attempts`.
///
/// `attempts` pairs an arm's name with the fields of its attempt. A field that an
/// attempt does not have is a difference, too, unless the reference does not have it
/// either.
#[must_use]
pub fn same_across_arms(
    names: &[String],
    attempts: &[(&str, &IndexMap<String, Value>)],
) -> Vec<Difference> {
    let Some(((reference, expected), others)) = attempts.split_first() else {
        return Vec::new();
    };
    let show = |value: Option<&Value>| value.map_or("no such field".into(), json::shown);
    let mut differences = Vec::new();
    for field in names {
        for (arm, fields) in others {
            let (left, right) = (expected.get(field), fields.get(field));
            if !equal(left, right) {
                differences.push(Difference {
                    field: field.clone(),
                    arm: (*arm).to_owned(),
                    reference: (*reference).to_owned(),
                    expected: show(left),
                    got: show(right),
                });
            }
        }
    }
    differences
}

/// Equal values; numbers by value, so that 1 equals 1.0.
fn equal(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) if left != right => {
            let whole = left.as_i64().is_some() && right.as_i64().is_some();
            !whole && left.as_f64() == right.as_f64()
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds_for(value: serde_json::Value, condition: Scalar) -> bool {
        check(&serde_json::json!({ "x": value }), "x", &condition).is_ok()
    }

    fn text(condition: &str) -> Scalar {
        Scalar::Text(condition.into())
    }

    #[test]
    fn numbers_are_compared_by_value() {
        use serde_json::json;
        assert!(holds_for(json!(128), Scalar::Int(128)));
        assert!(holds_for(json!(128.0), Scalar::Int(128)));
        assert!(holds_for(json!(128), Scalar::Float(128.0)));
        assert!(holds_for(json!(1), text("> 0")));
        assert!(holds_for(json!(0.5), text("> 0")));
        assert!(!holds_for(json!(0), text("> 0")));
        assert!(holds_for(json!(0), text("== 0")));
        assert!(holds_for(json!(3), text("!= 0")));
        assert!(holds_for(json!(1.5), text("<= 1.5")));
        assert!(!holds_for(json!(1.5), text("< 1.5")));
        assert!(holds_for(json!(2), text(">= 1.5")));
        assert!(holds_for(json!(u64::MAX), text("> 9223372036854775807")));
        // One apart, and equal as doubles.
        assert!(!holds_for(
            json!(9_007_199_254_740_993_i64),
            Scalar::Int(9_007_199_254_740_992)
        ));
    }

    #[test]
    fn nothing_is_converted() {
        use serde_json::json;
        assert!(!holds_for(json!("128"), Scalar::Int(128)));
        assert!(!holds_for(json!(1), Scalar::Bool(true)));
        assert!(!holds_for(json!(null), text("< 1")));
        assert!(!holds_for(json!("true"), Scalar::Bool(true)));
        assert!(holds_for(json!("1"), text("!= 1")));
        assert!(holds_for(json!("metal"), text("metal")));
        assert!(holds_for(json!("> 0"), text("== > 0")));
    }

    #[test]
    fn a_missing_field_never_holds() {
        let empty = serde_json::json!({});
        let broken = check(&empty, "x", &text("!= 3")).unwrap_err();
        assert_eq!(broken.to_string(), "`x`: expected != 3, got no such field");
    }

    /// The example's rows with `says` as the field `ids` of `arm`.
    fn saying(says: &[(&str, &str)]) -> Vec<Attempt> {
        let plan = crate::record::example::plan();
        let template = crate::record::example::attempts(&plan).remove(0);
        let row = |(arm, ids): &(&str, &str)| Attempt {
            arm: (*arm).into(),
            fields: IndexMap::from([("ids".to_owned(), Value::from(*ids))]),
            ..template.clone()
        };
        says.iter().map(row).collect()
    }

    #[test]
    fn who_disagrees_with_the_base_is_at_fault_whoever_ran_first() {
        let expect = Expect {
            same_across_arms: vec!["ids".into()],
            ..Expect::default()
        };
        let rows = saying(&[("old", "x"), ("base", "a"), ("base", "a"), ("new", "a")]);
        let differs = |at: usize| differs(&expect, "base", &rows[at], &rows[..at]);
        assert_eq!(differs(0), None, "nothing to compare with");
        assert!(differs(1).is_some(), "no base yet: any arm will do");
        assert_eq!((differs(2), differs(3)), (None, None));
        let late = saying(&[("base", "a"), ("old", "x")]);
        let reason = super::differs(&expect, "base", &late[1], &late[..1]).unwrap();
        assert!(reason.contains("as in `base`"), "{reason}");
    }
}
