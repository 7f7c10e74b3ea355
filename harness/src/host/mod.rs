//! What machine this is, as facts and warnings; names nobody.
