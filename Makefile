# "make help" lists the targets.

GO     ?= go
BIN    := $(CURDIR)/bin
PKGS   := ./cli/... ./docs/... ./fleet/... ./internal/... ./operator/... ./server/... ./test/...
# Modules that other repositories require.
LIBRARIES = api client
export GOFLAGS += -buildvcs=false
# Images have no C library. With one setting for all, programs and tests share compiled packages.
export CGO_ENABLED ?= 0

# Without vet, which make lint runs on all packages.
TEST = $(GO) test -vet=off

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: run
run: kcp ## Build and start the server, with its data in .kcp.
	$(BIN)/kcp start --root-directory=.kcp

.PHONY: run-sharded
run-sharded: kcp ## Build and start a root shard, two more shards and a front proxy, with their data in .kcp-sharded.
	KCP_BIN=$(BIN) $(GO) run ./test/sharded/run -directory=.kcp-sharded

.PHONY: build
build: kcp ## Build bin/kcp, the kubectl plugin, the operator and the fleet.
	$(GO) build -o $(BIN)/ ./operator/cmd/... ./fleet/cmd/...

# Links to the plugin: the name by which it is called selects the command.
PLUGIN_NAMES = kubectl-ws kubectl-workspace kubectl-create-workspace \
	$(addprefix kubectl_complete-,kcp ws workspace create-workspace)

.PHONY: kcp
kcp: ## Build bin/kcp and the kubectl plugin, with links for its other names.
	$(GO) build -o $(BIN)/ ./server/cmd/kcp ./cli/cmd/...
	for name in $(PLUGIN_NAMES); do ln -sf kubectl-kcp $(BIN)/$$name; done

.PHONY: tools
tools: ## Build the generators and checkers, at the versions in tools/go.mod.
	cd tools && $(GO) build -o $(BIN)/ sigs.k8s.io/controller-tools/cmd/controller-gen ./trimcrds ./chartvalues ./bundle ./apidocs

# Version information, which releases of Kubernetes set in their programs.
KUBE_VERSION = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
KUBE_MINOR   = $(word 2,$(subst ., ,$(KUBE_VERSION)))
KUBE_FLAGS   = -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) -X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(KUBE_MINOR) -X k8s.io/component-base/version.gitTreeState=clean

.PHONY: clients
clients: ## Build kubectl and Helm.
	cd test/tools && $(GO) build -ldflags="$(KUBE_FLAGS)" -o $(BIN)/ k8s.io/kubernetes/cmd/kubectl helm.sh/helm/v4/cmd/helm

.PHONY: test-tools
test-tools: clients ## Build kubectl, Helm, the conformance tests and a kube-apiserver for the end-to-end tests.
	cd test/conformance && $(GO) test -ldflags="$(KUBE_FLAGS)" -c -o $(BIN)/conformance.test .
	$(GO) build -ldflags="$(KUBE_FLAGS)" -o $(BIN)/ k8s.io/kubernetes/cmd/kube-apiserver ./test/bench/etcd

.PHONY: stock
stock: ## Build third-party software for the end-to-end tests, at the versions in test/compatibility/go.mod.
	cd test/compatibility && $(GO) build -o $(BIN)/helm3 helm.sh/helm/v3/cmd/helm
	cd test/compatibility && $(GO) build -o $(BIN)/ github.com/fluxcd/kustomize-controller
	cd test/host/pods && $(GO) build -ldflags="-s -w" -o $(BIN)/ ./certmanager

HOST := $(BIN)/host
# Debian packages of the host cluster.
HOST_PACKAGES = containerd runc containernetworking-plugins iptables conntrack iproute2 util-linux socat jq
AS_ROOT = $(if $(filter 0,$(shell id -u)),,sudo )env KCP_HOST=$(KCP_HOST)
CERT_MANAGER = github.com/cert-manager/cert-manager

.PHONY: host-programs
host-programs: clients ## Build the programs and images of the host cluster, a real Kubernetes with one node.
	mkdir -p $(HOST)
	$(GO) build -o $(BIN)/kcp-host ./test/host
	cd tools && $(GO) build -o $(BIN)/ ./image
	cd test/host/node && $(GO) build -ldflags="-s -w $(KUBE_FLAGS)" -o $(HOST)/ ./kube
	cd test/host/pods && $(GO) build -ldflags="-s -w" -o $(HOST)/ ./...
	$(BIN)/image -o $(HOST)/pause.tar -image localhost/pause:host=/pause $(HOST)/pause=/pause
	$(BIN)/image -o $(HOST)/dns.tar -image localhost/dns:host=/dns $(HOST)/dns=/dns
	$(BIN)/image -o $(HOST)/cert-manager.tar -user 65532 \
		$(foreach part,controller webhook cainjector,-image 'localhost/cert-manager-$(part):host=/certmanager $(part)') $(HOST)/certmanager=/certmanager
	ln -sfn $$(cd test/host/pods && $(GO) list -m -f '{{.Dir}}' $(CERT_MANAGER))/deploy/charts/cert-manager $(HOST)/cert-manager-chart

ETCD_IMAGES  = $(BIN)/etcd-images
ETCD_VERSION = $(shell $(GO) list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)
ETCD_BEFORE  = $(shell $(GO) list -modfile=test/host/etcd/v3.6.mod -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)

.PHONY: etcd-images
etcd-images: ## Pack images of etcd for EtcdClusters, of the version in go.mod and the previous minor version.
	cd tools && $(GO) build -o $(BIN)/ ./image
	$(GO) build -trimpath -ldflags="-s -w" -o $(ETCD_IMAGES)/ ./operator/cmd/etcd-member ./operator/cmd/etcd-snapshot
	$(GO) build -modfile=test/host/etcd/v3.6.mod -trimpath -ldflags="-s -w" -o $(ETCD_IMAGES)/before/ ./operator/cmd/etcd-member
	$(BIN)/image -o $(ETCD_IMAGES)/$(ETCD_VERSION).tar -user 65532 -image 'localhost/etcd:$(ETCD_VERSION)=/etcd' \
		$(ETCD_IMAGES)/etcd-member=/etcd $(ETCD_IMAGES)/etcd-snapshot=/etcd-snapshot
	$(BIN)/image -o $(ETCD_IMAGES)/$(ETCD_BEFORE).tar -user 65532 -image 'localhost/etcd:$(ETCD_BEFORE)=/etcd' \
		$(ETCD_IMAGES)/before/etcd-member=/etcd $(ETCD_IMAGES)/etcd-snapshot=/etcd-snapshot

IMAGES     = $(BIN)/images
REPOSITORY = ghcr.io/kcplane
VERSION    = $(shell sed -n 's/^appVersion: //p' charts/kcp-operator/Chart.yaml)
ARCHS      = amd64 arm64
comma      = ,
LAYOUT     = $(BIN)/image -layout $(IMAGES) -arch $(subst $(eval ) ,$(comma),$(ARCHS)) -user 65532 -label org.opencontainers.image.source=https://github.com/kcplane/kcp \
	-label org.opencontainers.image.licenses=Apache-2.0 -label org.opencontainers.image.version

.PHONY: images
images: ## Pack the images of a release for ARCHS into bin/images, and print their digests.
	cd tools && $(GO) build -o $(BIN)/ ./image
	rm -rf $(IMAGES)
	for arch in $(ARCHS); do export GOOS=linux GOARCH=$$arch; \
		$(GO) build -trimpath -ldflags="-s -w" -o $(BIN)/linux-$$arch/ ./server/cmd/kcp ./operator/cmd/... ./fleet/cmd/... && \
		$(GO) build -modfile=test/host/etcd/v3.6.mod -trimpath -ldflags="-s -w" -o $(BIN)/linux-$$arch/before/ ./operator/cmd/etcd-member || exit 1; \
	done
	$(LAYOUT)=$(VERSION) -image $(REPOSITORY)/kcp:$(VERSION)=/kcp $(BIN)/linux-{arch}/kcp=/kcp
	$(LAYOUT)=$(VERSION) -image $(REPOSITORY)/kcp-operator:$(VERSION)=/kcp-operator $(BIN)/linux-{arch}/kcp-operator=/kcp-operator
	$(LAYOUT)=$(VERSION) -image $(REPOSITORY)/kcp-fleet:$(VERSION)=/kcp-fleet $(BIN)/linux-{arch}/kcp-fleet=/kcp-fleet \
		$(BIN)/linux-{arch}/kcp-fleet-agent=/kcp-fleet-agent
	$(LAYOUT)=$(ETCD_VERSION) -image $(REPOSITORY)/etcd:$(ETCD_VERSION)=/etcd \
		$(BIN)/linux-{arch}/etcd-member=/etcd $(BIN)/linux-{arch}/etcd-snapshot=/etcd-snapshot
	$(LAYOUT)=$(ETCD_BEFORE) -image $(REPOSITORY)/etcd:$(ETCD_BEFORE)=/etcd \
		$(BIN)/linux-{arch}/before/etcd-member=/etcd $(BIN)/linux-{arch}/etcd-snapshot=/etcd-snapshot

.PHONY: bundle
bundle: ## Generate the bundle for the Operator Lifecycle Manager from config/, and validate it.
	cd tools && $(GO) build -o $(BIN)/ ./bundle
	$(BIN)/bundle -o bundle config

.PHONY: bundle-image
bundle-image: ## Pack the bundle of a release into bin/images; it refers to the images there by digest.
	cd tools && $(GO) build -o $(BIN)/ ./bundle ./image
	$(BIN)/bundle -o $(BIN)/bundle-$(VERSION) -images $(IMAGES) config
	$(BIN)/image -layout $(IMAGES) -arch $(subst $(eval ) ,$(comma),$(ARCHS)) \
		$$(sed -n 's/^  \(.*\): \(.*\)$$/-label \1=\2/p' bundle/metadata/annotations.yaml) \
		-image $(REPOSITORY)/kcp-operator-bundle:$(VERSION)= $(BIN)/bundle-$(VERSION)/manifests=/manifests $(BIN)/bundle-$(VERSION)/metadata=/metadata

.PHONY: manifests
manifests: clients ## Write install.yaml and the chart packages of a release to bin.
	$(BIN)/kubectl kustomize config/default > $(BIN)/install.yaml
	$(BIN)/helm package charts/kcp-operator charts/kcp-fleet --destination $(BIN)

.PHONY: push-images
push-images: ## Push the images in bin/images to REGISTRY (registry.example.com/path), by default the release registry.
	$(BIN)/image -push $(IMAGES) $(if $(REGISTRY),-registry $(REGISTRY))

.PHONY: host-packages
host-packages: ## Install the Debian packages for the host cluster, as root.
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $(HOST_PACKAGES)

.PHONY: host-up
host-up: host-programs ## Start the host cluster: a real Kubernetes with one node, and cert-manager.
	$(AS_ROOT) $(BIN)/kcp-host up

HOST_OPERATOR = $(HOST)/operator

.PHONY: host-operator
host-operator: host-up kcp ## Start the host cluster, install the operator of this clone, and create a small kcp.
	$(GO) build -ldflags="-s -w" -o $(HOST_OPERATOR)/ ./server/cmd/kcp ./operator/cmd/...
	$(BIN)/image -o $(HOST_OPERATOR)/kcp.tar -user 65532 -image localhost/kcp:host=/kcp $(HOST_OPERATOR)/kcp=/kcp
	$(BIN)/image -o $(HOST_OPERATOR)/kcp-operator.tar -user 65532 -image localhost/kcp-operator:host=/kcp-operator $(HOST_OPERATOR)/kcp-operator=/kcp-operator
	$(BIN)/image -o $(HOST_OPERATOR)/etcd.tar -user 65532 -image 'localhost/etcd:$(ETCD_VERSION)=/etcd' \
		$(HOST_OPERATOR)/etcd-member=/etcd $(HOST_OPERATOR)/etcd-snapshot=/etcd-snapshot
	$(AS_ROOT) $(BIN)/kcp-host operator

.PHONY: host-down
host-down: ## Remove the host cluster.
	$(AS_ROOT) $(BIN)/kcp-host down

.PHONY: test
test: unit e2e-server e2e-sharded-chosen e2e-abuse ## Run all tests except those that need a host cluster.

.PHONY: unit
unit: ## Run the unit tests.
	$(TEST) -timeout=20m $$($(GO) list ./cli/... ./fleet/... ./internal/... ./operator/... ./server/... ./test/host/... ./test/definitions ./test/sharded/... | grep -v /e2e)
	for library in $(LIBRARIES); do (cd $$library && $(TEST) $$($(GO) list ./... | grep -v /kcptest)) || exit 1; done
	cd tools && $(TEST) ./...
	cd test/argocd && $(TEST) ./...
	cd test/prometheus && $(TEST) ./...

# The longest package is the first, so that others run beside it.
.PHONY: e2e-server
e2e-server: build test-tools stock ## Run the end-to-end tests of the server, with real processes, kubectl and Helm.
	KCP_BIN=$(BIN) $(TEST) -count=1 -timeout=20m ./test/e2e/sharding \
		$$($(GO) list ./operator/e2e ./test/e2e/... | grep -v -e /test/e2e/host -e /test/e2e/abuse -e /test/e2e/sharding)
	cd client && KCP_BIN=$(BIN) $(TEST) -count=1 ./kcptest

.PHONY: e2e-sharded-chosen
e2e-sharded-chosen: build clients ## Run some end-to-end tests of the server through the front proxies of an installation with three shards.
	KCP_BIN=$(BIN) $(GO) run ./test/sharded/run -suites=chosen

.PHONY: e2e-sharded
e2e-sharded: build test-tools stock ## Run all end-to-end tests that a front proxy can serve through those of an installation with three shards.
	KCP_BIN=$(BIN) $(GO) run ./test/sharded/run -suites=all

# This runs alone, because other tests would affect its measurements.
.PHONY: e2e-abuse
e2e-abuse: build ## Run each attack of one tenant for six seconds, and check that another tenant is not affected.
	KCP_BIN=$(BIN) $(TEST) -count=1 -timeout=20m ./test/e2e/abuse

# One package after the other, because go test counts the time in which a package waits for the cluster, and ends it after the timeout.
.PHONY: e2e
e2e: build host-programs ## Start the host cluster and run the end-to-end tests of the operator on it, as root.
	KCP_BIN=$(BIN) $(TEST) -p=1 -count=1 -timeout=30m ./test/e2e/host/...

.PHONY: former
former: ## Build the server and the operator of the commit in test/skew, with chart and bundle, to upgrade from them.
	rm -rf $(BIN)/former && mkdir -p $(BIN)/former/source
	git archive $$(cat test/skew) | tar -x -C $(BIN)/former/source
	cd $(BIN)/former/source && $(GO) build -ldflags="-s -w" -o $(BIN)/former/ ./server/cmd/kcp ./operator/cmd/...
	mv $(BIN)/former/source/charts $(BIN)/former/source/bundle $(BIN)/former/
	rm -rf $(BIN)/former/source

.PHONY: e2e-installation
e2e-installation: build former host-programs ## Upgrade, mix, rotate and disturb an installation with shards on the host cluster, as root.
	KCP_BIN=$(BIN) KCP_INSTALLATION=whole $(TEST) -count=1 -v -timeout=90m -run=TestAnInstallation ./test/e2e/host/sharded

.PHONY: e2e-production
e2e-production: build host-programs ## Apply the example of a production installation to the host cluster, as root.
	KCP_BIN=$(BIN) $(TEST) -tags=production -count=1 -v -timeout=30m -run=TestTheProductionExample ./test/e2e/host/sharded

.PHONY: e2e-race
e2e-race: build clients ## Let four clients race for the same paths through two front proxies for ten minutes, while workspaces move.
	KCP_BIN=$(BIN) KCP_RACE=10m $(TEST) -count=1 -v -timeout=20m -run=TestNoRequestOfARace ./test/e2e/sharding

.PHONY: e2e-model
e2e-model: build clients ## Kill, cut off and restore the processes of an installation at random for ten minutes, while clients race in it.
	KCP_BIN=$(BIN) KCP_MODEL=10m $(TEST) -count=1 -v -timeout=30m -run=TestAnInstallationStays ./test/e2e/sharding

.PHONY: e2e-fleet-many
e2e-fleet-many: build test-tools ## Move a thousand namespaces from one cluster of a fleet to another, within the limit of moves.
	KCP_BIN=$(BIN) KCP_FLEET_NAMESPACES=1000 $(TEST) -count=1 -v -timeout=40m -run=TestFleet/Many ./test/e2e/fleet

FLEET_HOSTS = 8,9
.PHONY: e2e-fleet-hosts
e2e-fleet-hosts: build host-programs ## Attach two real clusters to a fleet, move an application between them under a probe, and kill one, as root.
	KCP_BIN=$(BIN) KCP_FLEET_HOSTS=$(FLEET_HOSTS) $(GO) test -tags=fleethosts -count=1 -v -timeout=60m -run=TestFleetOnHosts ./test/e2e/fleet

.PHONY: e2e-distant
e2e-distant: build clients ## Run the end-to-end tests of shards with 150 ms between all processes of the installation.
	KCP_BIN=$(BIN) KCP_DELAY=150ms $(TEST) -count=1 -v -timeout=40m ./test/e2e/sharding

# Exports, types, roles and published objects that shards read of each other, moves there and back, trees, homes and tokens.
SKEW_TESTS = Offered|Offers|ExportIsBound|ProviderReads|OtherShards|MovesWhileItIsUsed|MovesToItsProvider|ATreeOver|ATypeOf|AControllerOfAType|HomesAreOn|ThroughAProxy

.PHONY: e2e-skew
e2e-skew: build clients former ## Let shards of this version and of the commit in test/skew exchange feed and moves, with either as the root shard.
	KCP_BIN=$(BIN) KCP_FORMER=root,shard-2 $(TEST) -count=1 -v -timeout=20m -run='$(SKEW_TESTS)' ./test/e2e/sharding
	KCP_BIN=$(BIN) KCP_FORMER=shard-1,cache $(TEST) -count=1 -v -timeout=20m -run='$(SKEW_TESTS)' ./test/e2e/sharding

ARGOCD = github.com/argoproj/argo-cd/v3
OLM    = github.com/operator-framework/operator-lifecycle-manager

.PHONY: gitops-programs
gitops-programs: host-programs ## Build Argo CD and the Operator Lifecycle Manager, for tests on the host cluster.
	mkdir -p $(HOST)/olm
	cd test/host/argocd && $(GO) build -ldflags="-s -w" -o $(HOST)/ .
	cd test/host/olm && $(GO) build -tags=containers_image_openpgp,exclude_graphdriver_btrfs -ldflags="-s -w" -o $(HOST)/olm/ tool
	ln -sfn $$(cd test/host/argocd && $(GO) list -m -f '{{.Dir}}' $(ARGOCD)) $(HOST)/argocd-source
	ln -sfn $$(cd test/host/olm && $(GO) list -m -f '{{.Dir}}' $(OLM))/deploy/chart $(HOST)/olm-chart

.PHONY: e2e-gitops
e2e-gitops: build former gitops-programs ## Install and upgrade the operator with Argo CD and with the Operator Lifecycle Manager, on the host cluster, as root.
	KCP_BIN=$(BIN) $(GO) test -tags=gitops -count=1 -v -timeout=40m ./test/e2e/host/gitops

.PHONY: e2e-nodes
e2e-nodes: build host-programs ## Stop a node of the host cluster, and check that its pods are replaced, as root.
	KCP_BIN=$(BIN) $(GO) test -tags=nodes -count=1 -v -timeout=20m -run=TestPodsOfLostNode ./test/e2e/host/rootshard

.PHONY: operator-faults
operator-faults: ## Delete every object of the operator, alone and in pairs, in every phase of a rotation, in memory.
	KCP_FAULTS=all $(GO) test -count=1 -timeout=2h -run=TestNoDeletionDuringARotationEndsTheTrust ./operator/internal/rootshard ./operator/internal/etcdcluster

INSTALLATIONS ?= 50
.PHONY: operator-scale
operator-scale: build test-tools ## Measure the operator with INSTALLATIONS of three shards at a kube-apiserver without pods, until and after they are Ready.
	KCP_BIN=$(BIN) KCP_INSTALLATIONS=$(INSTALLATIONS) $(GO) test -count=1 -v -timeout=1h -run=TestManyInstallations ./operator/e2e

.PHONY: conformance
conformance: build test-tools ## Run all conformance tests of Kubernetes that apply to a logical cluster, next to busy clusters.
	KCP_BIN=$(BIN) KCP_CONFORMANCE=all $(GO) test -count=1 -v -timeout=2h ./test/e2e/conformance

.PHONY: compatibility
compatibility: build stock clients ## Run third-party software in workspaces, and write the table in docs/compatibility.md; needs node and npm.
	cd test/compatibility && $(GO) build -o $(BIN)/ github.com/fluxcd/helm-controller
	cd test/argocd && $(GO) build -o $(BIN)/gitops-agent github.com/argoproj/argo-cd/gitops-engine/agent
	cd test/host/node && $(GO) build -o $(BIN)/ k8s.io/kubernetes/cmd/kube-controller-manager
	KCP_BIN=$(BIN) KCP_COMPATIBILITY=all $(GO) test -count=1 -v -timeout=20m ./test/e2e/compatibility -update

.PHONY: durability
durability: build ## Kill the server 50 times during writes, and check that no data is lost.
	KCP_BIN=$(BIN) KCP_DURABILITY=all $(GO) test -count=1 -v -timeout=1h ./test/e2e/durability

.PHONY: poison
poison: build ## Write random objects of kcp's resources for 10 minutes, corrupt stored objects, and restart the server.
	KCP_BIN=$(BIN) KCP_POISON=10m $(GO) test -count=1 -v -timeout=1h ./test/e2e/security -run TestServerToleratesEveryStoredValue

.PHONY: crash
crash: build ## Kill the server 20 times while 10,000 workspaces are created and deleted, and check that no data remains.
	KCP_BIN=$(BIN) KCP_CRASH=all $(GO) test -count=1 -v -timeout=1h ./test/e2e/crash

.PHONY: leak
leak: build ## Create and delete 10,000 workspaces ten times, and check that memory is freed.
	KCP_BIN=$(BIN) KCP_LEAK=all $(GO) test -count=1 -v -timeout=4h ./test/e2e/idle -run DeletedWorkspaces

.PHONY: abuse
abuse: build ## Run each attack of one tenant for a minute, and print the effect on another tenant.
	KCP_BIN=$(BIN) KCP_ABUSE=all $(GO) test -count=1 -v -timeout=3h ./test/e2e/abuse

.PHONY: abuse-sharded
abuse-sharded: build ## Run each attack of one tenant through two front proxies at once, and print the effect on another tenant.
	KCP_BIN=$(BIN) KCP_ABUSE_SHARDED=true $(GO) test -count=1 -v -timeout=1h ./test/e2e/abuse

.PHONY: race
race: ## Run the unit tests with the race detector, which needs a C compiler.
	CGO_ENABLED=1 $(GO) test -race $$($(GO) list ./cli/... ./fleet/... ./internal/... ./operator/... ./server/... | grep -v /e2e)
	cd client && CGO_ENABLED=1 $(GO) test -race ./workspaces

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Fuzz the parsers and the comparison of definitions, FUZZTIME each.
	$(GO) test -run='^$$' -fuzz=FuzzResolve -fuzztime=$(FUZZTIME) ./cli/internal/location
	$(GO) test -run='^$$' -fuzz=FuzzParse -fuzztime=$(FUZZTIME) ./cli/internal/location
	$(GO) test -run='^$$' -fuzz=. -fuzztime=$(FUZZTIME) ./internal/crd/compat
	$(GO) test -run='^$$' -fuzz=. -fuzztime=$(FUZZTIME) ./server/internal/request/path
	$(GO) test -run='^$$' -fuzz=. -fuzztime=$(FUZZTIME) ./server/internal/request/bodylimit
	$(GO) test -run='^$$' -fuzz=. -fuzztime=$(FUZZTIME) ./server/internal/request/mount
	$(GO) test -run='^$$' -fuzz=. -fuzztime=$(FUZZTIME) ./server/internal/auth/authorization
	$(GO) test -run='^$$' -fuzz=. -fuzztime=$(FUZZTIME) ./server/internal/auth/authentication
	$(GO) test -run='^$$' -fuzz=FuzzExportV1alpha1 -fuzztime=$(FUZZTIME) ./server/internal/apis/conversion
	$(GO) test -run='^$$' -fuzz=FuzzExportV1alpha2 -fuzztime=$(FUZZTIME) ./server/internal/apis/conversion
	$(GO) test -run='^$$' -fuzz=FuzzBindingV1alpha1 -fuzztime=$(FUZZTIME) ./server/internal/apis/conversion
	$(GO) test -run='^$$' -fuzz=FuzzBindingV1alpha2 -fuzztime=$(FUZZTIME) ./server/internal/apis/conversion

.PHONY: bench
bench: ## Compare the server with a vanilla kube-apiserver and print the ratios.
	$(GO) run ./test/bench

.PHONY: bench-fairness
bench-fairness: ## Measure a client of one tenant alone, and next to 8 and 50 clients of another tenant.
	$(GO) run ./test/bench -fairness

.PHONY: bench-sharded
bench-sharded: ## Measure an installation of three shards through front proxies, compared with requests to a shard itself.
	$(GO) run ./test/bench -sharded

.PHONY: bench-against
bench-against: ## Compare the server with another build of it: make bench-against OTHER=<directory with the other kcp>.
	$(GO) run ./test/bench -short -against=$(OTHER)
	$(GO) run ./test/bench -compare=10000 -against=$(OTHER)

.PHONY: bench-thousand-shards
bench-thousand-shards: ## Measure one front proxy and one cache server with 1,000 stand-ins of shards and 1,000,000 workspaces.
	$(GO) run ./test/bench -standins=1000

N ?= 10000
.PHONY: bench-sharing
bench-sharing: ## Measure an API that N logical clusters bind, compared with a vanilla kube-apiserver.
	$(GO) run ./test/bench -sharing=$(N)

.PHONY: bench-unread
bench-unread: ## Measure the memory of N Secrets and N ConfigMaps of 5 KB that no controller reads.
	$(GO) run ./test/bench -unread=$(N)

.PHONY: bench-workspaces
bench-workspaces: ## Measure a server with up to N workspaces; an interrupted run continues from .bench.
	$(GO) run ./test/bench -workspaces=$(N) -directory=.bench/$(N) -svg=.bench/workspaces-$(N).svg

.PHONY: bench-namespaces
bench-namespaces: ## Compare N workspaces with namespaces of a vanilla server; fail if idle ones add goroutines or metrics.
	$(GO) run ./test/bench -compare=$(N)

# The API groups that the server serves.
SERVED = $(filter-out operator fleet,$(patsubst api/%/,%,$(wildcard api/*/)))
GENERATED = api bundle charts config docs/reference operator server/internal/apis/customresources/system

.PHONY: generate
generate: tools ## Generate deep copies, definitions and the reference from the types in api/.
	$(BIN)/controller-gen object paths=./api/...
	$(BIN)/controller-gen crd $(foreach group,$(SERVED),paths=./api/$(group)/...) output:crd:dir=server/internal/apis/customresources/system
	$(BIN)/controller-gen crd paths=./api/fleet/... output:crd:dir=api/fleet/v1alpha1/definitions
	$(BIN)/controller-gen crd paths=./api/operator/... output:crd:dir=config/crd/bases
	$(BIN)/controller-gen rbac:roleName=kcp-operator paths=./operator/... output:rbac:dir=config/rbac
	$(BIN)/trimcrds -below=extraVolumes,extraVolumeMounts,volumes,volumeMounts,resources config/crd/bases/*.yaml
	cp config/crd/bases/*.yaml charts/kcp-operator/files/crds/
	cp config/rbac/role.yaml config/rbac/aggregated.yaml charts/kcp-operator/files/rbac/
	cp config/prometheus/rules.yaml charts/kcp-operator/files/prometheus/
	cp config/policy/policies.yaml charts/kcp-operator/files/policy/
	$(BIN)/chartvalues charts/kcp-operator charts/kcp-fleet
	$(BIN)/bundle -o bundle config
	$(BIN)/apidocs -o docs/reference -kubernetes v1.$(KUBE_MINOR) -examples 'config/samples/*.yaml' -examples 'docs/*.md' ./api/...

.PHONY: golangci-lint
golangci-lint:
	cd tools/lint && $(GO) build -o $(BIN)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: golangci-lint ## Check formatting, what .golangci.yaml lists, and the modules of the libraries.
	@test -z "$$(gofmt -l api cli client fleet internal operator server test tools)" || { gofmt -l api cli client fleet internal operator server test tools; echo "not formatted: run gofmt -w on these"; exit 1; }
	$(BIN)/golangci-lint run $(PKGS)
	$(GO) vet -tags=fleethosts,gitops,nodes,production ./test/e2e/...
	for module in tools $(LIBRARIES); do (cd $$module && $(BIN)/golangci-lint run ./...) || exit 1; done
	for library in $(LIBRARIES); do (cd $$library && $(GO) mod tidy -diff) || exit 1; done
	cd test/argocd && $(GO) vet ./...
	cd test/prometheus && $(GO) vet ./...

.PHONY: fix-lines
fix-lines: golangci-lint ## Wrap lines of code that are longer than 140 characters, in FILES.
	$(BIN)/golangci-lint fmt --enable golines $(FILES)

.PHONY: verify
verify: generate lint ## Fail on stale generated files, lint findings and forbidden dependencies.
	@test -z "$$(git status --porcelain -- $(GENERATED))" || \
		{ git status --short -- $(GENERATED); git diff -- $(GENERATED); echo "generated files are stale: commit the result of make generate"; exit 1; }
	$(GO) test -count=1 ./test/repository

.PHONY: clean
clean: ## Remove bin/, .kcp/ and .kcp-sharded/.
	rm -rf $(BIN) .kcp .kcp-sharded
