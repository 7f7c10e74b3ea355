//! The command line: one file per sub-command. The only room that prints.
