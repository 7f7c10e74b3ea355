//! From a checked-out commit to hashed artifacts, once per key.
//!
//! `key` names a build, `cache` keeps it, `builder` makes it, `artifact` says
//! what it is (code hash, libraries, receipt). Nothing here measures.
