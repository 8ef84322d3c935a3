package workspaceauth

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestAUserOfAnIssuerIsLimitedToOneCluster(t *testing.T) {
	response, ok, err := confine(&authenticator.Response{User: &user.DefaultInfo{
		Name: "jane", UID: "7", Groups: []string{"developers", "system:masters", "system:kcp:logical-cluster-admin", "apis.kcp.io:binding:system:kcp:tenancy:workspace-bootstrapper"},
		Extra: map[string][]string{"mail": {"j@x"}, "authorization.kcp.io/warrant": {"{}"}, "authentication.kcp.io/scopes": {"cluster:other"}},
	}}, "ours")
	want := &user.DefaultInfo{
		Name: "jane", UID: "7", Groups: []string{"developers", "system:authenticated"},
		Extra: map[string][]string{"mail": {"j@x"}, "authentication.kcp.io/scopes": {"cluster:ours"}, "authentication.kcp.io/cluster-name": {"ours"}},
	}
	if err != nil || !ok || !reflect.DeepEqual(response.User, want) {
		t.Errorf("the user is %+v: %t, %v", response, ok, err)
	}
	for _, name := range []string{"system:admin", "apis.kcp.io:binding:alice"} {
		if _, ok, err := confine(&authenticator.Response{User: &user.DefaultInfo{Name: name}}, "ours"); ok || err == nil {
			t.Errorf("an issuer may call a user %s", name)
		}
	}
}

func TestTheSizeOfAnIssuersUserIsLimited(t *testing.T) {
	for count, want := range map[int]bool{maxUser / 128: true, maxUser / 10: false} {
		groups := make([]string, count)
		for n := range groups {
			groups[n] = fmt.Sprintf("group-%08d", n)
		}
		if _, ok, err := confine(&authenticator.Response{User: &user.DefaultInfo{Name: "jane", Groups: groups}}, "ours"); ok != want || (err == nil) != want {
			t.Errorf("%d groups: %t, %v", count, ok, err)
		}
	}
}

func TestARequestWithoutASingleClusterIsNotAuthenticated(t *testing.T) {
	i := &Issuers{}
	for _, ctx := range []context.Context{t.Context(), logicalcluster.WithWildcard(t.Context())} {
		if _, ok, err := i.AuthenticateToken(ctx, "a.b.c"); ok || err != nil {
			t.Errorf("%t, %v", ok, err)
		}
	}
}

func TestTheLeastRecentlyUsedConfigurationIsDropped(t *testing.T) {
	i := &Issuers{ready: map[informers.Key]*ready{}}
	stopped := 0
	began := time.Now()
	for n := range most {
		i.ready[informers.Key{Cluster: "c", Name: fmt.Sprint(n)}] = &ready{used: began.Add(time.Duration(n)), stop: func() { stopped++ }}
	}
	modest := informers.Key{Cluster: "modest", Name: "0"}
	i.ready[modest] = &ready{used: began.Add(-time.Hour), stop: func() { t.Error("it makes room for those who have many") }}
	i.makeRoom()
	if _, left := i.ready[informers.Key{Cluster: "c", Name: "0"}]; left || len(i.ready) != most || stopped != 1 {
		t.Errorf("%d are ready, %d were stopped, the oldest is left: %t", len(i.ready), stopped, left)
	}
}

func TestExpressionsOfIssuersAreLimited(t *testing.T) {
	list := make([]any, 1000)
	for n := range list {
		list[n] = float64(n)
	}
	compiled, err := newCompiler().CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{
		Expression: "dyn(claims.list).all(a, dyn(claims.list).all(b, dyn(claims.list).all(c, a + b + c >= 0.0))) ? 'x' : 'y'",
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for ctx, want := range map[context.Context]string{t.Context(): "cost limit exceeded", ended: "interrupted"} {
		_, err = authenticationcel.NewClaimsMapper([]authenticationcel.CompilationResult{compiled}).EvalClaimMapping(ctx,
			types.DefaultTypeAdapter.NativeToValue(map[string]any{"list": list}).(traits.Mapper))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
