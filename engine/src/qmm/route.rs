//! The ways to compute a product.

/// A way to compute a product. Back ends that lack one take their nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Matrix times one vector, weights read packed.
    Qmv,
    /// The same for a few vectors.
    BatchedQmv,
    /// A fused tile: weights unpacked in registers, used for many rows.
    Tiled,
    /// The same on the matrix units of an RDNA GPU.
    WmmaDense,
    /// Weights dequantised as a whole, then a dense product; the dequantised weights are cached.
    DequantGemm,
    /// The same where the WMMA kernel would fit but has too many rows, and nothing is cached: a
    /// prefill comes past more matrices than any cache holds, so none is found again, and the last
    /// ones would stay alive for nothing.
    DequantGemmAboveWmmaCeiling,
    /// Weights and activations as e4m3, then a dense product.
    DequantFp8Gemm,
}

impl Route {
    /// Every route, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Qmv,
        Self::BatchedQmv,
        Self::Tiled,
        Self::WmmaDense,
        Self::DequantGemm,
        Self::DequantGemmAboveWmmaCeiling,
        Self::DequantFp8Gemm,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qmv => "qmv",
            Self::BatchedQmv => "batched_qmv",
            Self::Tiled => "tiled",
            Self::WmmaDense => "wmma_dense",
            Self::DequantGemm => "dequant_gemm",
            Self::DequantGemmAboveWmmaCeiling => "dequant_gemm_above_wmma_ceiling",
            Self::DequantFp8Gemm => "dequant_fp8_gemm",
        }
    }

    /// Whether the weights are dequantised as a whole, so that the product cannot be fused with
    /// another stage.
    #[must_use]
    pub fn dequantises(self) -> bool {
        matches!(
            self,
            Self::DequantGemm | Self::DequantGemmAboveWmmaCeiling | Self::DequantFp8Gemm
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_that_dequantise_say_so_in_their_names() {
        for route in Route::ALL {
            let dequantises = route.name().starts_with("dequant");
            assert_eq!(route.dequantises(), dequantises, "{}", route.name());
        }
    }

    #[test]
    fn every_route_is_counted_in_a_place_of_its_own() {
        let places: Vec<usize> = Route::ALL.map(|route| route as usize).to_vec();
        assert_eq!(places, (0..Route::ALL.len()).collect::<Vec<_>>());
    }
}
