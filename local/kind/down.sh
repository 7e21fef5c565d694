#!/usr/bin/env bash
# `make kind-down`: removes the cluster and the registry of `make kind`, with everything in them.
set -euo pipefail
cd "${0%/*}/../.."

for tool in docker kind; do
  command -v "$tool" > /dev/null || { echo "make kind-down: $tool not found on PATH. Install it." >&2; exit 78; }
done
kind delete cluster --name slipway --kubeconfig .slipway/kind/kubeconfig
docker rm --force --volumes slipway-registry
rm -rf .slipway/kind
