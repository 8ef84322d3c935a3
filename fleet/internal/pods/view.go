package pods

import (
	"context"
	"crypto/x509"
	_ "embed"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	certificates "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/resources"
)

// reader is the user that kcp is here.
const reader = "fleet:storage"

// Reader returns the conversion of the certificates with which kcp reads virtual storage: those with a common name. No other user may read
// pods. An agent cannot have such a certificate, because another authority issues them.
func Reader(commonName string) certificates.UserConversion {
	return certificates.UserConversionFunc(func(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
		if commonName == "" || len(chain) == 0 || chain[0].Subject.CommonName != commonName {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: reader}}, true, nil
	})
}

//go:embed definition.yaml
var definition []byte

// New returns the pods of all workspaces.
func New(config Config) (*Pods, error) {
	p := &Pods{config: config, versions: newVersions(), watches: watches{open: map[string]map[*watcher]struct{}{}},
		calls: newLimits(callsOfWorkspace, callsOfCluster), streams: newLimits(streamsOfWorkspace, streamsOfCluster)}
	parsed, err := resources.Parse(definition)
	if err != nil {
		return nil, err
	}
	p.handler, err = resources.New(resources.Resource{Definition: parsed, ReadOnly: true,
		Objects: func(ctx context.Context, namespace string) (resources.Objects, error) { return p.of(ctx, namespace) }})
	return p, err
}

// of returns the pods of a namespace in the workspace of a context.
func (p *Pods) of(ctx context.Context, namespace string) (objects, error) {
	workspace, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return objects{}, apierrors.NewBadRequest("pods belong to one workspace: " + err.Error())
	}
	return objects{Pods: p, workspace: string(workspace), namespace: namespace}, nil
}

// Changed ends the watches of a workspace if its namespaces run on other clusters now.
func (p *Pods) Changed(ctx context.Context, workspace string) { p.watches.changed(ctx, workspace) }

// Find returns the view of a path: clusters/<workspace>/<path of the API>.
func (p *Pods) Find(path string) (virtual.View, string, error) {
	target, rest, err := virtual.Cluster(path)
	return view{p, target}, rest, err
}

// view is what one workspace sees.
type view struct {
	*Pods
	target logicalcluster.Cluster
}

// Authorize allows everything to kcp, and nothing to others. Deletions of pods and connections to them are authorized in their
// workspace.
func (v view) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() == nil || a.GetUser().GetName() != reader {
		return authorizer.DecisionDeny, "only kcp reads pods here; users read them in their workspaces", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// Serve serves pods, and streams of them.
func (v view) Serve(_ http.Handler, w http.ResponseWriter, r *http.Request) {
	if v.target.Wildcard {
		virtual.Fail(w, r, apierrors.NewBadRequest("pods belong to one workspace"))
		return
	}
	r = r.WithContext(logicalcluster.WithName(r.Context(), v.target.Name))
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
		switch {
		case info.Subresource != "":
			v.stream(w, r, info)
			return
		case info.Verb == "delete":
			v.serveDelete(w, r, info)
			return
		}
	}
	v.handler.ServeHTTP(w, r)
}
