//! From a revision to a checked-out commit, without touching the user's own tree.
