package frontproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/server/internal/frontproxy/answer"
	"github.com/kcplane/kcp/server/internal/frontproxy/questions"
	"github.com/kcplane/kcp/server/internal/shards/peers"
)

const (
	reviews       = "/clusters/root/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviewTimeout = 10 * time.Second
	// maxReview is the maximum size of the answer.
	maxReview = 64 << 10
)

// withAccess serves clients that may get the path by the rules of root. The proxy asks in the name of the client, so that it needs no
// permission itself.
func (p *Proxy) withAccess(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{request: r, began: p.clock.Now()}
		if err := p.access(r, x); err != nil {
			p.refuse(w, x, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *Proxy) access(r *http.Request, x *exchange) (err error) {
	if x.caller, err = callerOf(r, p.users); err != nil {
		return err
	}
	c := x.caller
	if c.client.Trust == questions.Anonymous {
		return apierrors.NewUnauthorized("credentials are required")
	}
	end, err := p.open.begin(c.client.Key)
	if err != nil {
		return err
	}
	defer end()
	review, err := p.review(r, c)
	if err != nil {
		return err
	}
	if !review.Status.Allowed {
		return answer.Status(http.StatusForbidden, metav1.StatusReasonForbidden, r.URL.Path+" is forbidden: "+review.Status.Reason)
	}
	return nil
}

// review asks the root shard whether a client may get the path of its request.
func (p *Proxy) review(r *http.Request, c caller) (review authorizationv1.SelfSubjectAccessReview, err error) {
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: "get"}
	body, err := json.Marshal(review)
	if err != nil {
		return review, err
	}
	base, known := p.shards.URL(peers.Root)
	if !known {
		return review, answer.Unavailable("the front proxy does not know the root shard")
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, base.String()+reviews, bytes.NewReader(body))
	if err != nil {
		return review, err
	}
	files := p.files.Load()
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Accept", "application/json")
	if c.user != nil {
		files.headers.Set(out.Header, p.groups.Apply(c.user))
	} else {
		out.Header["Authorization"] = r.Header["Authorization"]
	}
	response, err := files.shards.RoundTrip(out)
	if err != nil {
		return review, answer.Unavailable("the root shard, which authorizes the request, does not respond; try again")
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReview))
	switch {
	case err != nil:
	case response.StatusCode == http.StatusUnauthorized:
		return review, apierrors.NewUnauthorized("the credentials of the request are invalid")
	case response.StatusCode == http.StatusForbidden:
		return review, answer.Status(http.StatusForbidden, metav1.StatusReasonForbidden, r.URL.Path+" is forbidden: no access to root")
	case response.StatusCode != http.StatusCreated:
		err = fmt.Errorf("status %s", response.Status)
	default:
		err = json.Unmarshal(text, &review)
	}
	if err != nil {
		return review, answer.Unavailable("the root shard does not authorize the request: " + err.Error())
	}
	return review, nil
}
