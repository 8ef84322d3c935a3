package apisharing

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// setClaims sets the permission claims of an export.
func setClaims(t *testing.T, p *kcptest.Cluster, claims string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"permissionClaims":%s}}`, claims)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(kcptest.Context(t), "widgets", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestClaimedReviewsRunInConsumer(t *testing.T) {
	t.Parallel()
	p, consumer, other := provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	const claimed = `[{"group":"authorization.k8s.io","resource":"subjectaccessreviews","verbs":["create"]%[1]s},
		{"group":"authorization.k8s.io","resource":"localsubjectaccessreviews","verbs":["create"]%[1]s},
		{"group":"authentication.k8s.io","resource":"tokenreviews","verbs":["create"]%[1]s}]`
	setClaims(t, p, fmt.Sprintf(claimed, ""))
	for _, c := range []*kcptest.Cluster{consumer, other} {
		bind(t, c, p)
		c.Kubectl(t, "patch", "apibinding", "widgets", "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"permissionClaims":`+claimed+`}}`, `,"state":"Accepted","selector":{"matchLabels":{"a":"b"}}`))
	}
	consumer.Grant(t, kcptest.Alice, "view")
	account, err := consumer.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(c *kcptest.Cluster) kubernetes.Interface {
		return kubernetes.NewForConfigOrDie(server.At(kcptest.Masters, pathOf(p, "widgets", c.Name)))
	}
	attributes := &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "configmaps", Namespace: "default"}
	for _, c := range []*kcptest.Cluster{consumer, other} {
		want := c == consumer
		spec := authorizationv1.SubjectAccessReviewSpec{User: kcptest.Alice.Name, Groups: kcptest.Alice.Groups, ResourceAttributes: attributes}
		review, err := at(c).AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != want || len(review.Labels) > 0 {
			t.Errorf("SubjectAccessReview: got %+v, %v, want %v without labels", review, err, want)
		}
		local, err := at(c).AuthorizationV1().LocalSubjectAccessReviews("default").Create(ctx,
			&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: spec}, metav1.CreateOptions{})
		if err != nil || local.Status.Allowed != want || len(local.Labels) > 0 {
			t.Errorf("LocalSubjectAccessReview: got %+v, %v, want %v without labels", local, err, want)
		}
		token, err := at(c).AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: account.Status.Token}}, metav1.CreateOptions{})
		if err != nil || token.Status.Authenticated != want || len(token.Labels) > 0 {
			t.Errorf("TokenReview: got %+v, %v, want %v without labels", token, err, want)
		}
	}
}

func TestFormerClaimsOfExportAreNotFound(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	claiming(t, p, `"*"`)
	bind(t, consumer, p)
	accept(t, consumer, "Accepted", `"*"`, everyObject)
	sees(t, p, consumer.Name, "kube-root-ca.crt", "kube-root-ca.crt")
	setClaims(t, p, "[]")
	for _, cluster := range []string{consumer.Name, "*"} {
		kcptest.Eventually(t, "the claim is removed in "+cluster, func(ctx context.Context) error {
			_, err := view(t, kcptest.Masters, p, cluster).Resource(configMaps).List(ctx, metav1.ListOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	_, err := view(t, kcptest.Masters, p, consumer.Name).Resource(configMaps).Namespace("default").Create(ctx, configMap("made", nil), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = view(t, kcptest.Stranger, p, consumer.Name).Resource(configMaps).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}
