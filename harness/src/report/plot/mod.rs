//! The report's pictures, as SVG files that need nothing else.
//!
//! `changes` is the summary, `rounds` the paired changes, `values` the
//! distributions, `drift` the session over time. `canvas` draws, `scale` maps
//! numbers to places, `panel` lays out one frame per cell, `palette` has the
//! colours. A picture is white all over, so it is legible on a dark page too.

pub mod bisection;
pub mod calibration;
pub mod canvas;
mod changes;
mod drift;
pub mod figure;
mod palette;
mod panel;
mod rounds;
mod scale;
mod values;
