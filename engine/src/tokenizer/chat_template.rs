//! Messages to the text that a chat model was trained on, by the folder's Jinja template.
//!
//! The template sees what the reference implementation gives it: `messages`, the special tokens by
//! role, `add_generation_prompt`, no tools; blocks are trimmed, strings have Python's methods. It
//! sees no clock: a template that asks for today's date falls back to its own, so a prompt is the
//! same on every day.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, context};
use serde_json::Value;

use super::error::TokenizerError;
use super::python_json::tojson;
use super::settings::{self, MOST_BYTES, Settings, read_limited};

/// Name of the template in an [`Environment`].
const NAME: &str = "chat";

/// Instructions that a template may run; one for a long chat takes some thousands. With it goes the
/// depth to which a template can nest values.
const FUEL: u64 = 1_000_000;

/// The longest template compiled, in bytes; published ones are below 32 kB. With it goes the depth
/// to which expressions can nest.
const MOST_TEMPLATE_BYTES: usize = 64 << 10;

/// Stack of the thread that templates run on, in bytes: address space, used as far as it is needed.
/// minijinja recurses over chains of operators and over nested values without a limit; by the two
/// constants above, 4 kB for each byte of a template and 2 kB for each level of a value.
const STACK_BYTES: usize = 256 << 20;

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sets the tone.
    System,
    /// Asks.
    User,
    /// Answers.
    Assistant,
}

/// One turn of a chat.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Message {
    /// Who.
    pub role: Role,
    /// What.
    pub content: String,
}

impl Message {
    /// `content`, said by `role`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
        }
    }
}

/// A folder's template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
    special_tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// The template of `dir`: chat_template.jinja, else that of tokenizer_config.json, else
    /// chat_template.json; `None` where there is none.
    ///
    /// # Errors
    /// When a file cannot be read or the template is not valid.
    pub fn load(dir: &Path, settings: &Settings) -> Result<Option<Self>, TokenizerError> {
        let tokens = &settings.special_tokens;
        let path = dir.join("chat_template.jinja");
        if let Some(bytes) = read_limited(&path, MOST_BYTES)? {
            let text = String::from_utf8(bytes).map_err(|error| TokenizerError::File {
                path: path.clone(),
                problem: error.to_string(),
            })?;
            return Self::compile(&path, text, tokens.clone()).map(Some);
        }
        if let Some(text) = &settings.chat_template {
            let path = dir.join(settings::FILE_NAME);
            return Self::compile(&path, text.clone(), tokens.clone()).map(Some);
        }
        let path = dir.join("chat_template.json");
        let Some(bytes) = read_limited(&path, MOST_BYTES)? else {
            return Ok(None);
        };
        let root: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let text = root["chat_template"].as_str();
        let text = text.ok_or_else(|| TokenizerError::File {
            path: path.clone(),
            problem: "`chat_template`: expected a text".to_owned(),
        })?;
        Self::compile(&path, text.to_owned(), tokens.clone()).map(Some)
    }

    /// Compiles `text`; `path` is for error messages.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn compile(
        path: &Path,
        text: String,
        special_tokens: BTreeMap<String, String>,
    ) -> Result<Self, TokenizerError> {
        if text.len() > MOST_TEMPLATE_BYTES {
            let got = text.len();
            let problem = format!("{got} bytes, expected at most {MOST_TEMPLATE_BYTES}");
            return Err(failed(path, problem));
        }
        let environment = on_deep_stack(path, || environment(text))?;
        Ok(Self {
            path: path.to_owned(),
            environment,
            special_tokens,
        })
    }

    /// The text of `messages`, with the opening of the assistant's next turn.
    ///
    /// # Errors
    /// When the template refuses the messages (roles that do not alternate), or fails.
    pub fn render(&self, messages: &[Message]) -> Result<String, TokenizerError> {
        let tokens = self.special_tokens.iter();
        let tokens = tokens.map(|(role, text)| (role.as_str(), text.as_str()));
        let nothing = minijinja::Value::from(());
        let context = context! {
            messages => Serde(messages),
            add_generation_prompt => true,
            tools => nothing.clone(),
            documents => nothing,
            ..minijinja::Value::from_pairs(tokens)
        };
        on_deep_stack(&self.path, || {
            self.environment.get_template(NAME)?.render(context)
        })
    }
}

/// Everything that a template may use, and the template `text` as [`NAME`].
fn environment(text: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    add_builtins(&mut environment);
    environment.add_template_owned(NAME, text)?;
    Ok(environment)
}

/// Runs `work` where a template cannot overflow the stack, which would end the process.
fn on_deep_stack<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, TokenizerError> {
    let described = || work().map_err(|error| with_causes(&error));
    let result = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, described)
            .map_err(|error| format!("no thread for it: {error}"))?;
        let panicked = |_| Err("the template engine failed".to_owned());
        thread.join().unwrap_or_else(panicked)
    });
    result.map_err(|problem| failed(path, problem))
}

fn add_builtins(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", raise_exception);
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The error and its causes in one line: the outer one says where, the inner one what.
fn with_causes(error: &Error) -> String {
    let mut problem = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        problem.push_str(": ");
        problem.push_str(&inner.to_string());
        cause = inner.source();
    }
    problem
}

fn failed(path: &Path, problem: String) -> TokenizerError {
    TokenizerError::ChatTemplate {
        path: path.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str, messages: &[Message]) -> Result<String, TokenizerError> {
        let tokens = [("bos_token".to_owned(), "<s>".to_owned())];
        ChatTemplate::compile(Path::new("t.jinja"), text.to_owned(), tokens.into())?
            .render(messages)
    }

    fn hello() -> Vec<Message> {
        vec![Message::new(Role::User, " <b>Hello</b> & \"you\" ")]
    }

    #[test]
    fn text_is_not_escaped_and_special_tokens_are_there() {
        let text = render("{{ bos_token }}{{ messages[0].content }}", &hello()).unwrap();
        assert_eq!(text, "<s> <b>Hello</b> & \"you\" ");
    }

    #[test]
    fn blocks_are_trimmed_as_the_reference_does() {
        let template = "{% for m in messages %}\n    {% if true %}\n{{ m['role'] }}\n    {% endif %}\n{% endfor %}\n.";
        assert_eq!(render(template, &hello()).unwrap(), "user\n.");
    }

    #[test]
    fn strings_have_python_methods() {
        let template = "{{ messages[0]['content'].strip().upper() }}|\
            {{ messages[0].role.startswith('us') }}|{{ 'a,b'.split(',')[-1] }}|\
            {{ messages[0].get('name', 'nobody') }}|{{ (messages[1:]) | length }}";
        let text = render(template, &hello()).unwrap();
        assert_eq!(text, "<B>HELLO</B> & \"YOU\"|True|b|nobody|0");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let text = render(
            "{{ messages | tojson }}",
            &[Message::new(Role::User, "<é>")],
        )
        .unwrap();
        assert_eq!(text, r#"[{"role": "user", "content": "<é>"}]"#);
        let text = render("{{ [1, 2] | tojson(indent=2) }}", &[]).unwrap();
        assert_eq!(text, "[\n  1,\n  2\n]");
    }

    #[test]
    fn what_a_template_says_no_to_is_an_error_with_its_words() {
        let template = "{{ raise_exception('roles must alternate') }}";
        let error = render(template, &hello()).unwrap_err().to_string();
        assert!(error.contains("roles must alternate"), "{error}");
        assert!(error.contains("t.jinja"), "{error}");
    }

    #[test]
    fn a_broken_or_endless_template_is_an_error() {
        assert!(render("{% if %}", &[]).is_err());
        assert!(render("{{ nothing.at.all }}", &[]).is_err());
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert!(render(endless, &[]).is_err());
    }
    #[test]
    fn the_longest_chain_of_operators_does_not_overflow_the_stack() {
        // Not chains of binary operators: minijinja takes minutes to compile one of this length.
        for (start, link, end) in [
            ("{{ ", "-", "1 }}"),
            ("{{ ", "not ", "1 }}"),
            ("{{ 1", "|e", " }}"),
            ("{{ a", ".a", " }}"),
            ("{{ a", "()", " }}"),
        ] {
            let links = (MOST_TEMPLATE_BYTES - start.len() - end.len()) / link.len();
            // Whether it renders or is refused does not matter: the process goes on.
            let _ = render(&format!("{start}{}{end}", link.repeat(links)), &[]);
        }
        let error = render(&" ".repeat(MOST_TEMPLATE_BYTES + 1), &[]).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("65537 bytes, expected at most 65536"),
            "{error}"
        );
    }

    #[test]
    fn the_deepest_value_does_not_overflow_the_stack() {
        for end in [
            "",
            "{{ ns.x }}",
            "{{ ns.x | tojson }}",
            "{{ ns.x == [ns.x] }}",
        ] {
            let template = format!(
                "{{% set ns = namespace(x=[]) %}}{{% for i in range(99999) %}}\
                 {{% set ns.x = [ns.x] %}}{{% endfor %}}{end}"
            );
            let _ = render(&template, &[]);
        }
    }
}
