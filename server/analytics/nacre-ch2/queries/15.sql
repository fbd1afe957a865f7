WITH revenue AS (SELECT (s_w_id * s_i_id) % 10000 AS supplier_no, SUM(ol_amount) AS total_revenue FROM stock, lines
  WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND ol_delivery_d >= '2018-01-01 00:00:00.000000'
    AND ol_delivery_d < '2018-04-01 00:00:00.000000' GROUP BY 1)
SELECT su_suppkey, su_name, su_address, su_phone, total_revenue FROM supplier, revenue
WHERE su_suppkey = supplier_no AND total_revenue = (SELECT MAX(total_revenue) FROM revenue) ORDER BY su_suppkey
