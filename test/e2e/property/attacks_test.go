package property

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// actAsStranger tries all operations with an identity without permissions.
func (a *actor) actAsStranger(ctx context.Context, k *kind) error {
	who := a.tenant.strangers(a.tenants)
	name := a.existing(k).name
	one, all := a.path(k)+"/"+name, a.path(k)
	object := k.object(a.id(k, name), a.fresh())
	attempts := []request{
		{method: http.MethodGet, path: one},
		{method: http.MethodGet, path: all},
		{method: http.MethodGet, path: k.path("")},
		{method: http.MethodGet, path: all, accept: asTable},
		{method: http.MethodGet, path: all, query: url.Values{"watch": {"true"}}},
		{method: http.MethodPost, path: all, body: object},
		{method: http.MethodPut, path: one, body: object},
		{method: http.MethodPatch, path: one, body: object, contentType: "application/merge-patch+json"},
		{method: http.MethodPatch, path: one, body: object, contentType: "application/apply-patch+yaml", query: url.Values{"fieldManager": {"x"}}},
		{method: http.MethodDelete, path: one},
		{method: http.MethodDelete, path: all},
		{method: http.MethodGet, path: "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"},
		{method: http.MethodPost, path: serviceAccounts.path("default") + "/" + robot + "/token", body: map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}},
	}
	r := attempts[a.rng.IntN(len(attempts))]
	r.as = who[a.rng.IntN(len(who))]
	if r.as.token == a.tenants[(a.tenant.index+1)%len(a.tenants)].robot.token {
		r.knows = []string{a.tenants[(a.tenant.index+1)%len(a.tenants)].name}
	}
	if a.tenant.viewer(k) && r.method != http.MethodGet && a.likely(30) {
		r.as = bob // who has only permission to read
	}
	ctx, cancel := context.WithTimeout(ctx, a.patience) // a watch that is not refused would not end
	defer cancel()
	_, err := a.ask(ctx, r, http.StatusUnauthorized, http.StatusForbidden)
	return err
}

// forgeCluster tries to set the cluster annotation of an object to another cluster, or to remove it.
func (a *actor) forgeCluster(ctx context.Context, k *kind) error {
	other, s := a.other(), a.fresh()
	wanted := a.existing(k)
	before, exists := a.model.objects[wanted]
	s.note = before.note
	body := k.object(wanted, s)
	annotations := body["metadata"].(map[string]any)["annotations"].(map[string]any)
	annotations[clusterAnnotation] = other.name
	r := request{body: body, as: a.administrator(), knows: []string{other.name}}
	if exists {
		r.method, r.path, r.contentType = http.MethodPatch, a.path(k)+"/"+wanted.name, "application/merge-patch+json"
		if a.likely(50) {
			annotations[clusterAnnotation] = nil
		}
	} else {
		r.method, r.path = http.MethodPost, a.path(k)
	}
	got, err := a.ask(ctx, r, code(exists), http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity)
	if err != nil || got.code >= http.StatusBadRequest {
		return err
	}
	err = a.stored(got, wanted, s, false) // with the correct cluster
	if exists {
		return err
	}
	return a.settle(ctx, err, wanted, false)
}

// continueForeignList continues the list of another cluster in this one: the server may refuse it, or return objects of this cluster.
func (a *actor) continueForeignList(ctx context.Context, k *kind) error {
	other := a.other()
	if !other.serves(k) {
		return nil
	}
	query := url.Values{"limit": {"1"}}
	first, err := a.client.want(ctx, other, request{method: http.MethodGet, path: a.path(k), query: query, as: masters}, http.StatusOK)
	if err != nil {
		return err
	}
	metadata, _ := first.object["metadata"].(map[string]any)
	next := text(metadata, "continue")
	if next == "" {
		return nil // the list has only one page
	}
	codes := []int{http.StatusOK, http.StatusBadRequest, http.StatusGone}
	if len(a.shards) > 1 { // the revision of another shard may be in the future of this one
		codes = append(codes, http.StatusGatewayTimeout)
	}
	got, err := a.ask(ctx, request{
		method: http.MethodGet, path: a.path(k), query: url.Values{"limit": {"100"}, "continue": {next}}, as: a.whoReads(k),
	}, codes...)
	if err != nil || got.code != http.StatusOK {
		return err
	}
	return a.read(k, got, map[id]state{})
}

// reviewToken reviews a token of a service account: of this cluster, or of another one, which is unknown here.
func (a *actor) reviewToken(ctx context.Context, _ *kind) error {
	of, want := a.tenant, "system:serviceaccount:default:"+robot
	if a.likely(70) {
		of, want = a.other(), ""
	}
	got, err := a.ask(ctx, request{
		method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/tokenreviews", as: masters, body: map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]any{"token": of.robot.token},
		},
	}, http.StatusCreated)
	if err != nil {
		return err
	}
	status, _ := got.object["status"].(map[string]any)
	if status["authenticated"] == true != (want != "") || text(status, "user", "username") != want {
		return fmt.Errorf("reviewing a token of %s: got %v", of.name, status)
	}
	return nil
}

// discover reads the discovery and OpenAPI documents of the cluster.
func (a *actor) discover(ctx context.Context, _ *kind) error {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	of := func(path, accept string) request {
		return request{method: http.MethodGet, path: path, accept: accept, as: a.administrator()}
	}
	asks := func(version, kind string) request {
		return request{method: http.MethodPost, path: "/apis/" + version + "/" + kind, as: a.administrator(), body: map[string]any{
			"apiVersion": version, "kind": map[string]string{"selfsubjectreviews": "SelfSubjectReview", "selfsubjectrulesreviews": "SelfSubjectRulesReview"}[kind],
			"spec": map[string]any{"namespace": namespaces[0]},
		}}
	}
	switch a.rng.IntN(8) {
	case 0:
		return a.documents(ctx, of("/apis", aggregated), `"`+customGroup+`"`, false)
	case 1:
		return a.documents(ctx, of("/apis", ""), `"`+customGroup+`"`, false)
	case 2:
		return a.documents(ctx, of("/openapi/v3", ""), customGroup, false)
	case 3:
		return a.documents(ctx, of("/openapi/v2", ""), customGroup, true)
	case 4:
		r := of("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "")
		return a.documents(ctx, r, customGroup, true)
	case 5:
		_, err := a.ask(ctx, asks("authorization.k8s.io/v1", "selfsubjectrulesreviews"), http.StatusCreated)
		return err
	case 6:
		_, err := a.ask(ctx, asks("authentication.k8s.io/v1", "selfsubjectreviews"), http.StatusCreated)
		return err
	}
	if a.tenant.schema == "" {
		_, err := a.ask(ctx, of("/openapi/v3/apis/"+customGroup+"/v1", ""), http.StatusNotFound)
		return err
	}
	return a.documents(ctx, of("/openapi/v3/apis/"+customGroup+"/v1", ""), customGroup, true)
}

// documents checks that a document describes widgets if and only if the tenant has them, and with the schema of the tenant.
func (a *actor) documents(ctx context.Context, r request, mention string, schema bool) error {
	got, err := a.ask(ctx, r, http.StatusOK)
	if err != nil {
		return err
	}
	has := a.tenant.schema != ""
	if bytes.Contains(got.body, []byte(mention)) != has {
		return fmt.Errorf("%s: the cluster has widgets: %t, the document describes the opposite", r, has)
	}
	if has && schema && !bytes.Contains(got.body, []byte(a.tenant.schema)) {
		return fmt.Errorf("%s: the document does not have the schema of the cluster", r)
	}
	return nil
}
