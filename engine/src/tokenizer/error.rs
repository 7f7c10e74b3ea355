//! What can be wrong with a folder's tokenizer, or a text for it.

use std::path::PathBuf;

/// Text that cannot become ids, or ids that cannot become text.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder without tokenizer.json.
    #[error(
        "{}: no tokenizer.json in this folder: text needs one, only mlxcel-bench-decode does without",
        dir.display()
    )]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// A file that is not what its name says.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, with expected and got where there are both.
        problem: String,
    },
    /// A chat was asked for and the folder has no template.
    #[error(
        "{}: no chat template in this folder: use --raw to continue the prompt as it is",
        dir.display()
    )]
    NoChatTemplate {
        /// The folder.
        dir: PathBuf,
    },
    /// The template refused the messages, or failed on them.
    #[error("{}: chat template: {problem}", path.display())]
    ChatTemplate {
        /// File that holds the template.
        path: PathBuf,
        /// What it said.
        problem: String,
    },
    /// The tokenizer failed on a text.
    #[error("a text of {bytes} bytes cannot be tokenised: {problem}")]
    Encode {
        /// Its length.
        bytes: usize,
        /// What the tokenizer said.
        problem: String,
    },
    /// The tokenizer failed on ids.
    #[error("token ids cannot be made into text: {problem}")]
    Decode {
        /// What the tokenizer said.
        problem: String,
    },
}
