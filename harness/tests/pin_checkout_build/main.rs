//! From a revision to hashed artifacts, on tiny repositories made on the spot.

#[cfg(test)]
mod build_cache;
#[cfg(test)]
mod builds;
#[cfg(test)]
mod checkouts;
#[cfg(test)]
mod pins;
#[cfg(test)]
mod tiny_repo;
