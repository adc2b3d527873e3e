#!/usr/bin/env bash
# The cluster's keys, made anew: certificates.sh FOLDER NODE_ADDRESS API_ADDRESS
# An authority and the API server's certificate, the key of service accounts' tokens, a token each for the administrator and the
# kubelet, and their configurations of clients.
set -euo pipefail
cd "$1"
node_address=$2 api_address=$3
umask 077
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

key ca.key
openssl req -x509 -new -key ca.key -days 3650 -subj /CN=vcuda-test-cluster -out ca.crt
key api.key
openssl req -new -key api.key -subj /CN=kube-apiserver -out api.csr
openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out api.crt -extfile <(
    echo "subjectAltName=IP:127.0.0.1,IP:$node_address,IP:$api_address,DNS:kubernetes.default.svc"
) 2>/dev/null
key accounts.key
openssl ec -in accounts.key -pubout -out accounts.pub 2>/dev/null

# user NAME USER GROUP
user() {
    local token
    token=$(openssl rand -hex 16)
    echo "$token,$2,$2,$3" >>tokens.csv
    cat >"$1.kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://$node_address:443", certificate-authority: "$PWD/ca.crt"}}]
users: [{name: $1, user: {token: $token}}]
contexts: [{name: $1, context: {cluster: node, user: $1}}]
current-context: $1
CONFIG
}
: >tokens.csv
user admin admin system:masters
user kubelet system:node:node system:nodes
