//! What a whole model gives, and how far it is from another one's.

use mlxcel_engine::Engine;
use mlxcel_engine::backend::interface::{HeadRequest, TokenSource};
use mlxcel_engine::engine::StepRequest;

/// Of a prompt of nine tokens and two more one by one, so that both forms of each kernel run.
pub(crate) fn logits(engine: &Engine) -> Vec<f32> {
    let mut sequence = engine.new_sequence().unwrap();
    let request = StepRequest {
        head: HeadRequest::AllLogits,
        ..StepRequest::greedy()
    };
    let steps = [vec![1, 50, 3, 95, 20, 20, 7, 0, 64], vec![11], vec![90]];
    steps
        .into_iter()
        .flat_map(|ids| {
            let ticket = sequence.submit(TokenSource::Host(ids), request).unwrap();
            engine.read(ticket).unwrap().logits
        })
        .collect()
}

/// Root mean square of the difference, in that of the reference.
pub(crate) fn rms(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let mean_square =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>() / a.len() as f32;
    let error = mean_square(&mut a.iter().zip(b).map(|(a, b)| a - b));
    (error / mean_square(&mut b.iter().copied())).sqrt()
}
