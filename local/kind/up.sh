#!/usr/bin/env bash
# `make kind`: a cluster of kind with a registry, S3, the demo's Hub and Airflow, and a release of the demo's model in it.
# Run it again to continue, or after a change of the code. `make kind-down` removes all of it.
set -euo pipefail
cd "${0%/*}/../.."

CLUSTER=slipway
CHART=1.22.0
REGISTRY_CONTAINER=slipway-registry
REGISTRY_PORT=5001
AIRFLOW_PORT=${AIRFLOW_PORT:-8080}
FOLDER=$PWD/.slipway/kind
SITE=$FOLDER/site.yaml
export REGISTRY=localhost:$REGISTRY_PORT/slipway VERSION=dev KUBECONFIG=$FOLDER/kubeconfig

fail() {
  echo "make kind: $*" >&2
  exit 78
}

check_tools() {
  local missing=()
  for tool in docker kind kubectl helm openssl curl; do
    command -v "$tool" > /dev/null || missing+=("$tool")
  done
  [[ ${#missing[@]} -eq 0 ]] || fail "${missing[*]} not found on PATH. Install what is missing (docs/cluster-setup.md), or use \`make demo\`, which needs none of them."
  docker info > /dev/null 2>&1 || fail "Docker's engine does not answer. Start it; \`docker info\` says why it does not."
  docker buildx version > /dev/null 2>&1 || fail "Docker's buildx is missing. Install the plugin docker-buildx."
}

wait_for() { # SECONDS WHAT COMMAND...: until the command succeeds
  local until=$((SECONDS + $1)) what=$2
  shift 2
  while ! "$@" > /dev/null 2>&1; do
    ((SECONDS < until)) || fail "$what is not there in time. See \`kubectl get pods --all-namespaces\` with KUBECONFIG=$KUBECONFIG."
    sleep 2
  done
}

start_registry() {
  if ! docker inspect "$REGISTRY_CONTAINER" > /dev/null 2>&1; then
    docker run --detach --restart=always --publish "127.0.0.1:$REGISTRY_PORT:5000" --name "$REGISTRY_CONTAINER" registry:3.0.0
  fi
  docker start "$REGISTRY_CONTAINER" > /dev/null
}

start_cluster() {
  if ! kind get clusters | grep -x "$CLUSTER" > /dev/null; then
    sed "s#CHECKOUT#$PWD#" local/kind/cluster.yaml | kind create cluster --name "$CLUSTER" --config - --wait 5m
  fi
  kind export kubeconfig --name "$CLUSTER"
  # localhost is the node itself there: its containerd is told where the registry of that name is
  # (https://kind.sigs.k8s.io/docs/user/local-registry/)
  local hosts=/etc/containerd/certs.d/localhost:$REGISTRY_PORT
  for node in $(kind get nodes --name "$CLUSTER"); do
    docker exec "$node" mkdir -p "$hosts"
    echo "[host.\"http://$REGISTRY_CONTAINER:5000\"]" | docker exec -i "$node" cp /dev/stdin "$hosts/hosts.toml"
  done
  if [[ $(docker inspect --format '{{json .NetworkSettings.Networks.kind}}' "$REGISTRY_CONTAINER") == null ]]; then
    docker network connect kind "$REGISTRY_CONTAINER"
  fi
}

push_images() {
  # attestations would need a builder that cannot push to a registry on localhost
  docker buildx bake --load --provenance=false --sbom=false
  for image in airflow tasks-cpu triton-cpu; do
    docker push --quiet "$REGISTRY/$image:$VERSION"
  done
}

pushed() { # NAME: the image by its digest, so that a new one replaces the old one
  docker inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$REGISTRY/$1:$VERSION" |
    awk -v own="$REGISTRY/$1@" 'index($0, own) == 1 && !found++ { print } END { exit !found }'
}

secret() { # NAMESPACE NAME ARGUMENTS...: unless it exists, so that what uses it keeps working
  kubectl -n "$1" get secret "$2" > /dev/null 2>&1 || kubectl -n "$1" create secret generic "${@:2}"
}

value_of() { # NAMESPACE NAME KEY
  kubectl -n "$1" get secret "$2" --output "go-template={{index .data \"$3\" | base64decode}}"
}

make_secrets() {
  local key password
  secret slipway-store slipway-s3 --from-literal=AWS_ACCESS_KEY_ID=slipway \
    --from-literal=AWS_SECRET_ACCESS_KEY="$(openssl rand -hex 20)"
  key=$(value_of slipway-store slipway-s3 AWS_SECRET_ACCESS_KEY)
  for namespace in slipway slipway-serving; do
    secret "$namespace" slipway-s3 --from-literal=AWS_ACCESS_KEY_ID=slipway --from-literal=AWS_SECRET_ACCESS_KEY="$key"
  done
  secret slipway-store postgres --from-literal=password="$(openssl rand -hex 20)"
  password=$(value_of slipway-store postgres password)
  secret airflow airflow-database \
    --from-literal=connection="postgresql://airflow:$password@postgres.slipway-store.svc:5432/airflow"
  secret airflow airflow-aws --from-literal=connection="{\"conn_type\": \"aws\", \"login\": \"slipway\", \"password\": \"$key\",
    \"extra\": {\"endpoint_url\": \"http://object-store.slipway-store.svc:9000\", \"region_name\": \"us-east-1\"}}"
  secret airflow airflow-jwt --from-literal=jwt-secret="$(openssl rand -hex 32)"
  secret airflow airflow-api-secret-key --from-literal=api-secret-key="$(openssl rand -hex 32)"
  secret airflow airflow-fernet-key --from-literal=fernet-key="$(openssl rand -base64 32 | tr '+/' '-_')"
  secret airflow slipway-airflow-passwords \
    --from-literal=passwords.json="{\"admin\": \"$(openssl rand -hex 12)\", \"ci\": \"$(openssl rand -hex 12)\"}"
}

apply_slipway() {
  sed -e "s#IMAGE_OF_TASKS_CPU#$(pushed tasks-cpu)#" -e "s#IMAGE_OF_TRITON_CPU#$(pushed triton-cpu)#" local/kind/site.yaml > "$SITE"
  kubectl apply --filename local/kind/namespaces.yaml --filename k8s_manifests/base/namespace-slipway.yaml \
    --filename k8s_manifests/base/namespace-slipway-serving.yaml
  make_secrets
  kubectl apply --kustomize local/kind
  for name in object-store hub postgres; do
    kubectl -n slipway-store rollout status "deployment/$name" --timeout=10m
  done
  kubectl -n slipway-store wait --for=condition=complete job/bucket --timeout=5m
  bin/slipway --site "$SITE" setup --render | kubectl apply --filename -
}

install_airflow() {
  kubectl -n airflow create configmap slipway-site --from-file=site.yaml="$SITE" --dry-run=client --output yaml | kubectl apply --filename -
  helm upgrade --install airflow airflow --repo https://airflow.apache.org --version "$CHART" --namespace airflow \
    --values k8s_manifests/airflow/settings.yaml --values local/kind/airflow.values.yaml \
    --set "images.airflow.digest=$(pushed airflow | cut -d @ -f 2)" \
    --set-string "airflowPodAnnotations.site=$(openssl dgst -sha256 -r "$SITE" | cut -c 1-16)" --timeout 15m
  # not by helm's --wait: pods wait for the database's migration, a hook that would only run after them
  for workload in $(kubectl -n airflow get deployments,statefulsets --output name); do
    kubectl -n airflow rollout status "$workload" --timeout=15m
  done
  wait_for 300 "DAG release__demo-llama" kubectl -n airflow exec deployment/airflow-dag-processor --container dag-processor -- \
    airflow dags details release__demo-llama
}

release_the_demo() {
  kubectl -n airflow port-forward service/airflow-api-server "$AIRFLOW_PORT:8080" > /dev/null &
  trap 'kill %1' EXIT
  export SLIPWAY_AIRFLOW=http://127.0.0.1:$AIRFLOW_PORT SLIPWAY_AIRFLOW_USER=admin SLIPWAY_SITE=$SITE SLIPWAY_AIRFLOW_PASSWORD
  SLIPWAY_AIRFLOW_PASSWORD=$(value_of airflow slipway-airflow-passwords passwords.json |
    .slipway/envs/local/bin/python -c 'import json, sys; print(json.load(sys.stdin)["admin"])')
  wait_for 120 "Airflow at $SLIPWAY_AIRFLOW" curl --silent --fail "$SLIPWAY_AIRFLOW/api/v2/monitor/health"
  bin/slipway release demo-llama --revision v1
  bin/slipway ask demo-llama "What is the capital of France?"
  cat << END

The cluster stays: \`make kind-down\` removes it. To use it:

    export KUBECONFIG=$KUBECONFIG SLIPWAY_SITE=$SITE
    kubectl -n airflow port-forward service/airflow-api-server $AIRFLOW_PORT:8080 &
    export SLIPWAY_AIRFLOW=$SLIPWAY_AIRFLOW SLIPWAY_AIRFLOW_USER=admin SLIPWAY_AIRFLOW_PASSWORD=...   # of this Secret:
    kubectl -n airflow get secret slipway-airflow-passwords --output 'go-template={{index .data "passwords.json" | base64decode}}'
END
}

check_tools
"${PYTHON:-python3}" -m local.environments local
mkdir -p "$FOLDER"
start_registry
start_cluster
push_images
apply_slipway
install_airflow
release_the_demo
