//! Conditions on a field of the output: `128`, `true`, `'> 0'`, `'!= 3'`.
//!
//! Parsed here so that a bad one is an error of the file; applied in `metric::expect`.

use super::model::{Condition, Scalar};

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `==`, or a plain value.
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// As it is written in the file.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::Greater => ">",
            Comparison::AtLeast => ">=",
        }
    }
}

/// A condition that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Nothing after the sign.
    #[error("a value after `{sign}`")]
    NoOperand {
        /// The sign.
        sign: &'static str,
    },
    /// `<` and its kin compare numbers only.
    #[error("a finite number after `{sign}`, not `{operand}`")]
    NotANumber {
        /// The sign.
        sign: &'static str,
        /// What stands after it.
        operand: String,
    },
    /// `=`, `=>`, `=<`, `<>`, ….
    #[error("one of == != < <= > >=, not `{sign}`")]
    UnknownSign {
        /// What stands there.
        sign: String,
    },
}

/// Splits a condition into its sign and its operand.
///
/// Text that begins with a sign is a comparison, its operand read as a number,
/// `true`, `false` or text; any other scalar is compared for equality. To compare
/// with text that itself begins with a sign, write `== ` before it.
///
/// # Errors
/// A sign without operand, an ordering of something that is no number, or a
/// sign that does not exist.
pub fn parse(condition: &Condition) -> Result<(Comparison, Scalar), ConditionError> {
    let Scalar::Text(text) = condition else {
        return Ok((Comparison::Equal, condition.clone()));
    };
    let trimmed = text.trim();
    let end = trimmed
        .find(|c| !matches!(c, '<' | '>' | '=' | '!'))
        .unwrap_or(trimmed.len());
    let comparison = match &trimmed[..end] {
        "" => return Ok((Comparison::Equal, condition.clone())),
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        ">" => Comparison::Greater,
        ">=" => Comparison::AtLeast,
        "!" => return Ok((Comparison::Equal, condition.clone())),
        other => {
            let sign = other.to_owned();
            return Err(ConditionError::UnknownSign { sign });
        }
    };
    let sign = comparison.sign();
    let operand = trimmed[end..].trim();
    if operand.is_empty() {
        return Err(ConditionError::NoOperand { sign });
    }
    let value = operand_value(operand);
    let ordering = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if ordering && !matches!(value, Scalar::Int(_) | Scalar::Float(_)) {
        let operand = operand.to_owned();
        return Err(ConditionError::NotANumber { sign, operand });
    }
    Ok((comparison, value))
}

fn operand_value(operand: &str) -> Scalar {
    if let Ok(value) = operand.parse::<bool>() {
        return Scalar::Bool(value);
    }
    if let Ok(value) = operand.parse::<i64>() {
        return Scalar::Int(value);
    }
    match operand.parse::<f64>() {
        Ok(value) if value.is_finite() => Scalar::Float(value),
        _ => Scalar::Text(operand.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(condition: &str) -> Result<(Comparison, Scalar), ConditionError> {
        parse(&Scalar::Text(condition.to_owned()))
    }

    #[test]
    fn signs_and_operands_are_told_apart() {
        assert_eq!(text("> 0"), Ok((Comparison::Greater, Scalar::Int(0))));
        assert_eq!(text(">=1.5"), Ok((Comparison::AtLeast, Scalar::Float(1.5))));
        assert_eq!(
            text("!= true"),
            Ok((Comparison::NotEqual, Scalar::Bool(true)))
        );
        let metal = Scalar::Text("metal".into());
        assert_eq!(text("== metal"), Ok((Comparison::Equal, metal.clone())));
        assert_eq!(text("metal"), Ok((Comparison::Equal, metal)));
        let int = parse(&Scalar::Int(128));
        assert_eq!(int, Ok((Comparison::Equal, Scalar::Int(128))));
    }

    #[test]
    fn what_is_no_condition_says_why() {
        let message = |condition| text(condition).unwrap_err().to_string();
        assert_eq!(message("> many"), "a finite number after `>`, not `many`");
        assert_eq!(message("< nan"), "a finite number after `<`, not `nan`");
        assert_eq!(message("=="), "a value after `==`");
        assert_eq!(message("=> 3"), "one of == != < <= > >=, not `=>`");
    }
}
