SELECT su_nationkey AS supp_nation, substr(c_state, 1, 1) AS cust_nation,
       CAST(substr(o_entry_d, 1, 4) AS INT) AS l_year, ROUND(SUM(ol_amount), 2) AS revenue
FROM supplier, stock, lines, customer, nation n1, nation n2
WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND (s_w_id * s_i_id) % 10000 = su_suppkey AND c_id = o_c_id
  AND c_w_id = o_w_id AND c_d_id = o_d_id AND su_nationkey = n1.n_nationkey AND unicode(c_state) = n2.n_nationkey
  AND ((n1.n_name = 'Germany' AND n2.n_name = 'Cambodia') OR (n1.n_name = 'Cambodia' AND n2.n_name = 'Germany'))
  AND ol_delivery_d BETWEEN '2017-01-01 00:00:00.000000' AND '2018-12-31 00:00:00.000000'
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
