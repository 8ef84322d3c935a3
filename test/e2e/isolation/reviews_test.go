package isolation

import (
	"context"
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// clusterKey is the extra with the logical cluster of a service account. Clients rely on this key.
const clusterKey = "authentication.kcp.io/cluster-name"

func TestReviewsDistinguishServiceAccountsByCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	robot := robot(t, ours)
	const account = "system:serviceaccount:default:robot"
	global := "system:kcp:serviceaccount:" + ours.Name + ":default:robot"
	theirs.Kubectl(t, "create", "clusterrole", "for-theirs", "--verb=get", "--resource=configmaps")
	theirs.Kubectl(t, "create", "clusterrole", "for-ours", "--verb=list", "--resource=configmaps")
	theirs.Kubectl(t, "create", "clusterrolebinding", "for-theirs", "--clusterrole=for-theirs", "--user="+account)
	theirs.Kubectl(t, "create", "clusterrolebinding", "for-ours", "--clusterrole=for-ours", "--user="+global)
	theirs.Kubectl(t, "create", "clusterrolebinding", "access", "--clusterrole="+kcptest.EntryRole, "--user="+global)

	review, err := ours.Kube(t, kcptest.Masters).AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: robot.Token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || !slices.Equal(review.Status.User.Extra[clusterKey], []string{ours.Name}) {
		t.Errorf("TokenReview: got %+v, %v", review, err)
	}
	self, err := theirs.Kube(t, robot).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || !slices.Equal(self.Status.UserInfo.Extra[clusterKey], []string{ours.Name}) {
		t.Errorf("SelfSubjectReview: got %+v, %v", self, err)
	}

	extra := func(cluster string) map[string]authorizationv1.ExtraValue {
		return map[string]authorizationv1.ExtraValue{clusterKey: {cluster}}
	}
	for what, c := range map[string]struct {
		extra map[string]authorizationv1.ExtraValue
		verb  string
		want  bool
	}{
		"our account by its own name":        {extra(ours.Name), "get", false},
		"our account by its global name":     {extra(ours.Name), "list", true},
		"their account by its own name":      {extra(theirs.Name), "get", true},
		"their account by our global name":   {extra(theirs.Name), "list", false},
		"an account without a cluster, get":  {nil, "get", true},
		"an account without a cluster, list": {nil, "list", false},
	} {
		kcptest.Eventually(t, what, func(ctx context.Context) error {
			attributes := &authorizationv1.ResourceAttributes{Namespace: "default", Verb: c.verb, Resource: "configmaps"}
			spec := authorizationv1.SubjectAccessReviewSpec{User: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}, Extra: c.extra, ResourceAttributes: attributes}
			authorization := theirs.Kube(t, kcptest.Masters).AuthorizationV1()
			review, err := authorization.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil || review.Status.Allowed != c.want || len(review.Spec.Extra) != len(c.extra) {
				return fmt.Errorf("SubjectAccessReview: got %+v, %w", review, err)
			}
			local, err := authorization.LocalSubjectAccessReviews("default").Create(ctx, &authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: spec}, metav1.CreateOptions{})
			if err != nil || local.Status.Allowed != c.want {
				return fmt.Errorf("LocalSubjectAccessReview: got %+v, %w", local, err)
			}
			return nil
		})
	}

	impersonating := func(cluster string) kubernetes.Interface {
		config := theirs.Config(kcptest.Masters)
		config.Impersonate = rest.ImpersonationConfig{UserName: account, Extra: map[string][]string{clusterKey: {cluster}}}
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return kube
	}
	for what, c := range map[string]struct {
		kube kubernetes.Interface
		want string
	}{
		"our account":                 {theirs.Kube(t, robot), "list"},
		"our account, impersonated":   {impersonating(ours.Name), "list"},
		"their account, impersonated": {impersonating(theirs.Name), "get"},
	} {
		rules, err := c.kube.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var verbs []string
		for _, rule := range rules.Status.ResourceRules {
			if slices.Contains(rule.Resources, "configmaps") {
				verbs = append(verbs, rule.Verbs...)
			}
		}
		if !slices.Equal(verbs, []string{c.want}) {
			t.Errorf("%s: SelfSubjectRulesReview: got %v for ConfigMaps, want %s", what, verbs, c.want)
		}
	}
}

func TestReviewsOnlySayThatAccessIsDenied(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "annotate", "logicalcluster", "cluster", "authorization.kcp.io/required-groups=secret-team")
	kcptest.Eventually(t, "the review only says that access is denied", func(ctx context.Context) error {
		review, err := cluster.Kube(t, kcptest.Masters).AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: kcptest.Stranger.Name, Groups: []string{"system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}},
		}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed || !review.Status.Denied || review.Status.Reason != "access denied" {
			return fmt.Errorf("got %+v, %w", review.Status, err)
		}
		return nil
	})
	allowed, err := cluster.Kube(t, kcptest.Masters).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}},
	}, metav1.CreateOptions{})
	if err != nil || !allowed.Status.Allowed {
		t.Errorf("masters: %+v, %v", allowed, err)
	}
}
